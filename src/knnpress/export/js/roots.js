// Square roots of the bins.
function prepare(x) {
  const point = histogram(x);
  return point && point.map(Math.sqrt);
}
