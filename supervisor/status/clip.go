package status

import "saltern/internal/printable"

// maxText bounds a text in bytes.
const maxText = 300

// Clip shortens a text that is part of a [Finding], or shown beside one, to maxText.
func Clip(s string) string { return printable.Clip(s, maxText) }
