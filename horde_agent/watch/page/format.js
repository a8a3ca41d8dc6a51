"use strict";
// Numbers as texts. tests/agent/test_page_numbers.py has a table of them.

// Return a number with three significant digits, and all digits before the decimal point. A dash stands for no number.
function formatNumber(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  const number = Number(value);
  if (number === 0) return "0";
  const [mantissa, exponent] = number.toExponential(digits - 1).split("e");
  if (Number(exponent) >= 6 || Number(exponent) < -3) return withoutEndZeros(mantissa) + "e" + Number(exponent);
  const decimals = Math.max(digits - 1 - Number(exponent), 0);
  if (decimals === 0) return formatCount(Math.round(number));
  return withoutEndZeros(number.toFixed(decimals));
}

// Return a whole number with a comma before each three digits.
function formatCount(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en-GB");
}

// Return a number of bytes with its unit.
function formatBytes(value) {
  const units = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  for (const [size, unit] of units) if (value >= size) return (value / size).toFixed(1) + " " + unit;
  return value + " B";
}

// Remove zeros at the end of the digits after a decimal point, and the point if no digit is left there.
function withoutEndZeros(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// Return the labels of an axis, in one notation: decimals or powers of ten for all. A mark that is null has none.
function formatAxis(marks, isLogarithmic = false) {
  const sizes = marks.filter((mark) => mark !== null).map(Math.abs);
  const largest = Math.max(0, ...sizes);
  const isZero = (mark) => Math.abs(mark) <= 1e-9 * largest;  // sums of steps miss 0 by a rounding error
  const smallest = Math.min(...sizes.filter((size) => !isZero(size)));
  const isPlain = largest < 1e6 && smallest >= 1e-4;
  const exponent = largest > 0 ? Number(largest.toExponential(3).split("e")[1]) : 0;
  const unit = isPlain ? 1 : 10 ** exponent;
  let decimals = 0;
  const isExact = (mark) => Math.abs(mark / unit - Number((mark / unit).toFixed(decimals))) <= 1e-6 * largest / unit;
  while (decimals < 6 && !marks.every((mark) => mark === null || isExact(mark))) decimals += 1;
  return marks.map((mark) => {
    if (mark === null) return "";
    if (isZero(mark)) return "0";
    if (isLogarithmic) return isPlain ? mark.toLocaleString("en-GB", { maximumFractionDigits: 6 }) : powerOfTen(mark);
    if (isPlain) return mark.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    return (mark / unit).toFixed(decimals) + "e" + exponent;
  });
}

// Return a number as digit and exponent, "1e-5", "5e-4".
function powerOfTen(value) {
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return withoutEndZeros(mantissa) + "e" + Number(exponent);
}
