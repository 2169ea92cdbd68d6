package control

import (
	"saltern/internal/printable"
)

// maxText bounds a text that comes from another program, in bytes.
const maxText = 300

// oneLine returns an untrusted text, cut and made safe for one line of a status or a log.
func oneLine(s string) string { return printable.Brief(s, maxText) }
