package tui

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"saltern/supervisor/setup"
)

// pastes lists, by field, functions that repair pasted text, because text copied from a terminal
// has line breaks at the margin. For fields without a function a blank replaces each line end.
var pastes = map[string]func(string) (text, note string){
	"join":           joinPasted,
	"secret":         unbroken,
	"admin.password": unbroken,
	"again":          unbroken,
	"password":       unbroken,
	"admin.ssh_keys": keyPasted,
	"key":            keyPasted,
	"network.dns":    listPasted,
	"network.search": listPasted,
	"network.ntp":    listPasted,
	"peers":          listPasted,
}

// pasted inserts pasted text into the field with the cursor.
func (p *formPage) pasted(w *Wizard, msg tea.PasteMsg) tea.Cmd {
	text, note := msg.Content, ""
	if arrange := pastes[p.form.GetFocusedField().GetKey()]; arrange != nil {
		text, note = arrange(text)
	}
	cmd := p.insert(w, strings.TrimSpace(text))
	w.message = note
	return cmd
}

// insert inserts text into the text field that has the cursor. If no text field has the cursor,
// insert does nothing.
func (p *formPage) insert(w *Wizard, text string) tea.Cmd {
	if !w.typing() {
		return nil
	}
	w.message = ""
	_, cmd := p.form.Update(tea.PasteMsg{Content: text})
	return cmd
}

// unbroken returns text with its lines joined without a separator, and no note.
func unbroken(text string) (string, string) {
	return strings.NewReplacer("\n", "", "\t", "").Replace(text), ""
}

// joinPasted returns text without blanks, because a join string has none. It returns no note.
func joinPasted(text string) (string, string) { return strings.Join(strings.Fields(text), ""), "" }

// listPasted returns text with its lines joined by commas, and no note.
func listPasted(text string) (string, string) {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\t' }), ", "), ""
}

// keyPasted joins the lines of an SSH public key. If the text has several keys, it returns the
// first one, because the field holds only one, and a note for the user.
func keyPasted(text string) (key, note string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case key == "":
			key = line
		case beginsKey(line):
			return key, "The first of these keys is taken. More can be added later: applianced admin add-key"
		default:
			key = joinKey(key, line)
		}
	}
	return key, ""
}

// beginsKey reports whether a line begins with the type of an SSH key, which only the first line of
// a key does.
func beginsKey(line string) bool {
	kinds := []string{"ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"}
	return slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(line, kind) })
}

// joinKey joins two lines of a key, with a blank between them if only then the result is a key.
func joinKey(first, second string) string {
	whole := []string{first + second, first + " " + second}
	i := slices.IndexFunc(whole, func(s string) bool {
		_, err := setup.ReadKeys(strings.NewReader(s))
		return err == nil
	})
	return whole[max(i, 0)]
}
