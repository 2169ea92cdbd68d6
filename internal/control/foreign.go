package control

import (
	"saltern/internal/printable"
)

// maxText bounds a text of the other side in bytes.
const maxText = 300

// oneLine makes a text of the other side fit for one line of a status or a log.
func oneLine(s string) string { return printable.Brief(s, maxText) }
