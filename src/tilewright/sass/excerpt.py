def excerpt_of(function, path, work, run, found):
    return ""
