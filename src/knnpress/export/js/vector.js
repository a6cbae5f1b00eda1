// A vector: finite, and small enough for sums of squares.
function prepare(x) {
  const point = Float64Array.from(x);
  return point.every((value) => Math.abs(value) <= LARGEST) ? point : null;
}
