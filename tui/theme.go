package tui

import (
	"charm.land/bubbles/v2/key"
	"charm.land/huh/v2"
	"charm.land/lipgloss/v2"
)

// plainTheme returns a theme with bold and reverse only: no colour, no box glyphs. A tight theme
// has no empty lines between fields.
func plainTheme(tight bool) huh.Theme {
	separator := "\n\n"
	if tight {
		separator = "\n"
	}
	return huh.ThemeFunc(func(bool) *huh.Styles { return plainStyles(separator) })
}

func plainStyles(separator string) *huh.Styles {
	t := huh.ThemeBase(false)
	t.FieldSeparator = lipgloss.NewStyle().SetString(separator)
	bar := lipgloss.Border{Left: "|"}
	plain := lipgloss.NewStyle()
	t.Focused.Base = plain.PaddingLeft(1).BorderStyle(bar).BorderLeft(true)
	t.Focused.Title = bold
	t.Focused.Description = plain
	t.Focused.SelectSelector = plain.SetString("> ")
	t.Focused.SelectedOption = reverse
	t.Focused.UnselectedOption = plain
	t.Focused.TextInput = huh.TextInputStyles{}
	t.Focused.NextIndicator, t.Focused.PrevIndicator = plain, plain
	t.Blurred = t.Focused
	t.Blurred.Base = plain.PaddingLeft(1).BorderStyle(lipgloss.Border{Left: " "}).BorderLeft(true)
	t.Blurred.Title = plain
	t.Blurred.SelectedOption = plain
	t.Group = huh.GroupStyles{}

	return t
}

// formKeys returns the key bindings inside a field. The page itself handles the keys that move
// between fields.
func formKeys() *huh.KeyMap {
	k := huh.NewDefaultKeyMap()
	none := key.NewBinding(key.WithDisabled())
	k.Quit = none // the wizard itself handles quitting, and asks first
	k.Input.AcceptSuggestion = none
	k.Input.Prev = none
	k.Input.Next = none
	k.Input.Submit = none
	k.Select.Prev = none
	k.Select.Next = none
	k.Select.Submit = none
	k.Select.Filter = none
	k.Select.SetFilter = none
	k.Select.ClearFilter = none

	return k
}
