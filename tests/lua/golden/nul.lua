return experiment {
  name = "a\0b",
  about = "c\0d",
  archive = "full\0y",
}
