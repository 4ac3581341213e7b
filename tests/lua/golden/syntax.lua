return experiment {
  name = "syntax"
  model = {},
}
