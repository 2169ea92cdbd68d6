package status

import "saltern/internal/printable"

// maxText bounds a text in bytes.
const maxText = 300

// Clip bounds a text that is to stand in a [Finding] or beside one.
func Clip(s string) string { return printable.Clip(s, maxText) }
