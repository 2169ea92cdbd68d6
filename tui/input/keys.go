package input

import (
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// known is the key for a sequence. The zero value means that the sequence is unknown.
type known struct {
	code rune
	text string // the character that a key of the keypad types
	mod  tea.KeyMod
}

// finals maps the final byte of a control sequence to its key (cursor keys of ECMA-48; F1 to F4
// with modifiers of xterm).
var finals = map[byte]known{
	'A': {code: tea.KeyUp},
	'B': {code: tea.KeyDown},
	'C': {code: tea.KeyRight},
	'D': {code: tea.KeyLeft},
	'E': {code: tea.KeyBegin},
	'F': {code: tea.KeyEnd},
	'H': {code: tea.KeyHome},
	'P': {code: tea.KeyF1},
	'Q': {code: tea.KeyF2},
	'S': {code: tea.KeyF4},
	'Z': {code: tea.KeyTab, mod: tea.ModShift},
}

// tildes maps the first parameter of a control sequence that ends with a tilde to its key (DEC STD
// 070; xterm, Linux).
var tildes = map[int]known{
	1: {code: tea.KeyHome}, 2: {code: tea.KeyInsert}, 3: {code: tea.KeyDelete}, 4: {code: tea.KeyEnd},
	5: {code: tea.KeyPgUp}, 6: {code: tea.KeyPgDown}, 7: {code: tea.KeyHome}, 8: {code: tea.KeyEnd},
	11: {code: tea.KeyF1}, 12: {code: tea.KeyF2}, 13: {code: tea.KeyF3}, 14: {code: tea.KeyF4}, 15: {code: tea.KeyF5},
	17: {code: tea.KeyF6}, 18: {code: tea.KeyF7}, 19: {code: tea.KeyF8}, 20: {code: tea.KeyF9}, 21: {code: tea.KeyF10},
	23: {code: tea.KeyF11}, 24: {code: tea.KeyF12},
	28: {code: tea.KeyF1}, // the key Help of a vt220
}

// linuxKeys are F1 to F5 of the Linux console, by the byte after CSI [.
var linuxKeys = map[byte]known{
	'A': {code: tea.KeyF1},
	'B': {code: tea.KeyF2},
	'C': {code: tea.KeyF3},
	'D': {code: tea.KeyF4},
	'E': {code: tea.KeyF5},
}

// keypad are the keys by the byte after SS3: cursor keys in application mode, F1 to F4, and the
// keypad of a vt220 in application mode.
var keypad = func() map[byte]known {
	keys := map[byte]known{
		'R': {code: tea.KeyF3},
		'M': {code: tea.KeyEnter},
	}
	for final, k := range finals {
		keys[final] = k
	}
	for i, sign := range "*+,-./0123456789" {
		keys[byte('j'+i)] = known{code: sign, text: string(sign)}
	}
	keys['X'] = known{code: '=', text: "="}
	return keys
}()

// pressKnown emits a known key, with the modifier among params.
func (d *Decoder) pressKnown(k known, params []byte) {
	if k.code == 0 || len(params) == maxSequence {
		return
	}

	numbers, ok := parameters(params)
	if !ok {
		return
	}

	mod := k.mod
	if len(numbers) > 0 {
		pressed, ok := modifier(numbers[len(numbers)-1])
		if !ok {
			return
		}
		mod |= pressed
	}

	if mod != 0 {
		k.text = ""
	}

	d.emitKey(tea.KeyPressMsg{Code: k.code, Text: k.text, Mod: mod})
}

// endControl handles the final byte of a control sequence.
func (d *Decoder) endControl(final byte) {
	params := d.seq
	whole := len(params) < maxSequence
	d.enterState(ground)
	numbers, ok := parameters(params)
	switch {
	case !whole, !ok:
		return // a private sequence, intermediate bytes, or too long: not a key
	case final == '~':
		d.endTilde(numbers)
	case final == 'u':
		d.pressCode(numbers)
	default:
		d.pressKnown(finals[final], keyModifier(params))
	}
}

// keyModifier returns the modifier in the parameters of a cursor key: the second of two.
func keyModifier(params []byte) []byte {
	_, second, _ := strings.Cut(string(params), ";")
	return []byte(second)
}

// endTilde handles a control sequence whose final byte is a tilde.
func (d *Decoder) endTilde(numbers []int) {
	if len(numbers) == 0 {
		return
	}

	switch {
	case numbers[0] == 200:
		d.enterState(pasting)
		d.paste = d.paste[:0]
	case numbers[0] == 27 && len(numbers) == 3: // xterm, modifyOtherKeys
		d.pressCode([]int{numbers[2], numbers[1]})
	case len(numbers) == 1:
		d.pressKnown(tildes[numbers[0]], nil)
	case len(numbers) == 2:
		d.pressKnown(tildes[numbers[0]], []byte(strconv.Itoa(numbers[1])))
	}
}

// pressCode emits the key with a code point and a modifier. Terminals send keys in this form if an
// earlier program has enabled it (kitty's keyboard protocol, xterm's modifyOtherKeys). Key releases
// have a part after a colon; pressCode ignores them.
func (d *Decoder) pressCode(numbers []int) {
	if len(numbers) == 0 || len(numbers) > 2 || numbers[0] > 0x7f {
		return
	}

	var mod tea.KeyMod
	if len(numbers) == 2 {
		var ok bool
		if mod, ok = modifier(numbers[1]); !ok {
			return
		}
	}

	b := byte(numbers[0])
	if b == esc {
		d.emitKey(tea.KeyPressMsg{Code: tea.KeyEscape, Mod: mod})
		return
	}

	k, ok := single(b)
	if !ok || k.Mod != 0 {
		return
	}

	k.Mod = mod
	if mod&^tea.ModShift != 0 {
		k.Text = ""
	} else if k.Text != "" {
		k.Mod = 0
		if mod == tea.ModShift {
			k.Text = strings.ToUpper(k.Text)
		}
	}

	d.emitKey(k)
}

// modifier decodes xterm's modifier number: 1 plus one bit each for Shift, Alt and Ctrl. If the
// number has bits for other modifiers, it returns false.
func modifier(n int) (tea.KeyMod, bool) {
	if n < 1 || n > 8 {
		return 0, false
	}
	var mod tea.KeyMod
	for bit, m := range []tea.KeyMod{tea.ModShift, tea.ModAlt, tea.ModCtrl} {
		if (n-1)>>bit&1 == 1 {
			mod |= m
		}
	}
	return mod, true
}

// parameters parses numbers separated by semicolons. It returns false for any other text.
func parameters(p []byte) (numbers []int, ok bool) {
	if len(p) == 0 {
		return nil, true
	}
	for _, s := range strings.Split(string(p), ";") {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, int(n))
	}
	return numbers, true
}
