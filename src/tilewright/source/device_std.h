// What device code uses of namespace std: a part of the prelude where the source names it.
namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
typedef decltype(nullptr) nullptr_t;
typedef long ptrdiff_t;

using ::abs;
using ::acos;
using ::asin;
using ::atan;
using ::atan2;
using ::cbrt;
using ::ceil;
using ::copysign;
using ::cos;
using ::cosh;
using ::erf;
using ::erfc;
using ::exp;
using ::exp2;
using ::expm1;
using ::fabs;
using ::floor;
using ::fma;
using ::fmax;
using ::fmin;
using ::fmod;
using ::hypot;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::ldexp;
using ::lgamma;
using ::log;
using ::log10;
using ::log1p;
using ::log2;
using ::memcpy;
using ::memset;
using ::nearbyint;
using ::pow;
using ::printf;
using ::rint;
using ::round;
using ::sin;
using ::sinh;
using ::sqrt;
using ::tan;
using ::tanh;
using ::tgamma;
using ::trunc;

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool V>
using bool_constant = integral_constant<bool, V>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F>
struct conditional {
  typedef T type;
};
template <class T, class F>
struct conditional<false, T, F> {
  typedef F type;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;
template <class...>
using void_t = void;

template <class T>
struct remove_const {
  typedef T type;
};
template <class T>
struct remove_const<const T> {
  typedef T type;
};
template <class T>
struct remove_volatile {
  typedef T type;
};
template <class T>
struct remove_volatile<volatile T> {
  typedef T type;
};
template <class T>
struct remove_cv {
  typedef typename remove_volatile<typename remove_const<T>::type>::type type;
};
template <class T>
struct remove_reference {
  typedef T type;
};
template <class T>
struct remove_reference<T&> {
  typedef T type;
};
template <class T>
struct remove_reference<T&&> {
  typedef T type;
};
template <class T>
struct remove_pointer {
  typedef T type;
};
template <class T>
struct remove_pointer<T*> {
  typedef T type;
};
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
using remove_pointer_t = typename remove_pointer<T>::type;
template <class T>
struct remove_cvref {
  typedef remove_cv_t<remove_reference_t<T>> type;
};
template <class T>
using remove_cvref_t = typename remove_cvref<T>::type;
template <class T>
using decay_t = remove_cvref_t<T>;
template <class T>
T&& declval() noexcept;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class T>
struct is_pointer : false_type {};
template <class T>
struct is_pointer<T*> : true_type {};
template <class T>
struct is_const : false_type {};
template <class T>
struct is_const<const T> : true_type {};
template <class T>
struct is_void : is_same<remove_cv_t<T>, void> {};
template <class T>
struct is_floating_point
    : bool_constant<is_same<remove_cv_t<T>, float>::value || is_same<remove_cv_t<T>, double>::value> {};

template <class T>
struct _tilewright_integral : false_type {};
template <class T>
struct is_integral : _tilewright_integral<remove_cv_t<T>> {};
template <class T>
struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T, bool = is_arithmetic<T>::value>
struct is_signed : bool_constant<(T(-1) < T(0))> {};
template <class T>
struct is_signed<T, false> : false_type {};
template <class T>
struct is_unsigned : bool_constant<is_arithmetic<T>::value && !is_signed<T>::value> {};

template <class T>
struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class From, class To>
struct is_convertible : bool_constant<__is_convertible_to(From, To)> {};
template <class Base, class Derived>
struct is_base_of : bool_constant<__is_base_of(Base, Derived)> {};
template <class T>
struct is_enum : bool_constant<__is_enum(T)> {};
template <class T>
struct is_class : bool_constant<__is_class(T)> {};

template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;
template <class T>
constexpr bool is_pointer_v = is_pointer<T>::value;
template <class T>
constexpr bool is_const_v = is_const<T>::value;
template <class T>
constexpr bool is_void_v = is_void<T>::value;
template <class T>
constexpr bool is_integral_v = is_integral<T>::value;
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T>
constexpr bool is_signed_v = is_signed<T>::value;
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T>
constexpr bool is_trivially_copyable_v = is_trivially_copyable<T>::value;
template <class From, class To>
constexpr bool is_convertible_v = is_convertible<From, To>::value;
template <class Base, class Derived>
constexpr bool is_base_of_v = is_base_of<Base, Derived>::value;

// Functions only: a static constant of a class that is no template would be a global of every module.
template <class T>
struct _tilewright_limits {};
#define TILEWRIGHT_INTEGER(T, MIN, MAX)          \
  template <>                                    \
  struct _tilewright_integral<T> : true_type {}; \
  template <>                                    \
  struct _tilewright_limits<T> {                 \
    static constexpr T min() { return MIN; }     \
    static constexpr T lowest() { return MIN; }  \
    static constexpr T max() { return MAX; }     \
  };
TILEWRIGHT_INTEGER(bool, false, true)
TILEWRIGHT_INTEGER(char, CHAR_MIN, CHAR_MAX)
TILEWRIGHT_INTEGER(signed char, SCHAR_MIN, SCHAR_MAX)
TILEWRIGHT_INTEGER(unsigned char, 0, UCHAR_MAX)
TILEWRIGHT_INTEGER(short, SHRT_MIN, SHRT_MAX)
TILEWRIGHT_INTEGER(unsigned short, 0, USHRT_MAX)
TILEWRIGHT_INTEGER(int, INT_MIN, INT_MAX)
TILEWRIGHT_INTEGER(unsigned int, 0, UINT_MAX)
TILEWRIGHT_INTEGER(long, LONG_MIN, LONG_MAX)
TILEWRIGHT_INTEGER(unsigned long, 0, ULONG_MAX)
TILEWRIGHT_INTEGER(long long, LLONG_MIN, LLONG_MAX)
TILEWRIGHT_INTEGER(unsigned long long, 0, ULLONG_MAX)
#undef TILEWRIGHT_INTEGER
#define TILEWRIGHT_FLOATING(T, BITS, MIN, MAX, EPSILON, INF, QNAN)                \
  template <>                                                                     \
  struct _tilewright_limits<T> {                                                  \
    static constexpr T min() { return MIN; }                                      \
    static constexpr T lowest() { return -MAX; }                                  \
    static constexpr T max() { return MAX; }                                      \
    static constexpr T epsilon() { return EPSILON; }                              \
    static constexpr T infinity() { return __builtin_bit_cast(T, BITS(INF)); }    \
    static constexpr T quiet_NaN() { return __builtin_bit_cast(T, BITS(QNAN)); }  \
  };
TILEWRIGHT_FLOATING(float, uint32_t, 1.17549435e-38f, 3.40282347e+38f, 1.19209290e-7f, 0x7f800000, 0x7fc00000)
TILEWRIGHT_FLOATING(double, uint64_t, 2.2250738585072014e-308, 1.7976931348623157e+308, 2.2204460492503131e-16,
                    0x7ff0000000000000, 0x7ff8000000000000)
#undef TILEWRIGHT_FLOATING
template <class T>
struct numeric_limits : _tilewright_limits<T> {
  static constexpr bool is_specialized = is_arithmetic<T>::value;
  static constexpr bool is_integer = is_integral<T>::value;
  static constexpr bool is_signed = std::is_signed<T>::value;
  static constexpr bool has_infinity = is_floating_point<T>::value;
  static constexpr int digits = is_integer ? sizeof(T) * 8 - is_signed : sizeof(T) == 4 ? 24 : 53;
};

template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}
template <class T>
constexpr void swap(T& a, T& b) {
  T c = static_cast<T&&>(a);
  a = static_cast<T&&>(b);
  b = static_cast<T&&>(c);
}
template <class I, class T>
constexpr void fill(I first, I last, const T& value) {
  for (; first != last; ++first) *first = value;
}

template <class A, class B>
struct pair {
  A first;
  B second;
};
template <class T, size_t N>
struct array {
  T _items[N];
  constexpr T& operator[](size_t i) { return _items[i]; }
  constexpr const T& operator[](size_t i) const { return _items[i]; }
  constexpr size_t size() const { return N; }
  constexpr T* data() { return _items; }
  constexpr const T* data() const { return _items; }
  constexpr T* begin() { return _items; }
  constexpr T* end() { return _items + N; }
};

}  // namespace std
