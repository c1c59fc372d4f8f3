"""One module per variant: TiledKernel + stages → RewrittenSource (text and diff)."""
