package status

import "saltern/internal/printable"

// maxText bounds a text in bytes.
const maxText = 300

// Clip bounds a text that is part of a [Finding] or stands beside one.
func Clip(s string) string { return printable.Clip(s, maxText) }
