return experiment {
  model = {},
  train = {},
}
