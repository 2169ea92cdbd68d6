package input

import (
	"bytes"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// pasteEnd ends a bracketed paste (xterm, mode 2004).
const pasteEnd = "\x1b[201~"

// takePasted stores a byte of a bracketed paste. Beyond maxPaste it stores only bytes that may be
// the end of the paste, and drops all others.
func (d *Decoder) takePasted(b byte) {
	if len(d.paste) == maxPaste+len(pasteEnd) {
		copy(d.paste[maxPaste:], d.paste[maxPaste+1:])
		d.paste = d.paste[:len(d.paste)-1]
	}
	d.paste = append(d.paste, b)
	if b == '~' && bytes.HasSuffix(d.paste, []byte(pasteEnd)) {
		d.paste = d.paste[:len(d.paste)-len(pasteEnd)]
		d.endPaste()
		d.enterState(ground)
	}
}

// endPaste emits the pasted text with line feeds, and without control characters and sequences. If
// the paste was too long, its end is missing.
func (d *Decoder) endPaste() {
	all := d.paste[:min(len(d.paste), maxPaste)]
	for n := len(pasteEnd) - 1; n > 0; n-- {
		all = bytes.TrimSuffix(all, []byte(pasteEnd[:n]))
	}

	text := strings.ToValidUTF8(string(all), "")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(ansi.Strip(text))
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return -1
	}, text)

	d.paste = nil
	d.out = append(d.out, tea.PasteMsg{Content: text})
}
