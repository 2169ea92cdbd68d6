package input

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"saltern/test/screen"
)

// typed feeds what a terminal sends, byte by byte with a pause between them, and lets
// it come to its end. It gives the keys by name; what is typed as text stands between
// quotes, a paste between braces.
func typed(sent string, pause time.Duration) []string {
	var d Decoder
	var names []string
	add := func(list []tea.Msg) {
		for _, m := range list {
			switch m := m.(type) {
			case tea.KeyPressMsg:
				name := m.String()
				if m.Text != "" {
					name = fmt.Sprintf("%q", m.Text)
				}
				names = append(names, name)
			case tea.PasteMsg:
				names = append(names, "{"+m.Content+"}")
			}
		}
	}

	now := time.Now()
	if pause < 0 {
		add(d.Feed([]byte(sent), now))
	} else {
		for i := range len(sent) {
			now = now.Add(pause)
			if end := d.Deadline(); !end.IsZero() && now.After(end) {
				add(d.Expire(now))
			}
			add(d.Feed([]byte{sent[i]}, now))
		}
	}

	add(d.Expire(now.Add(time.Minute)))
	return names
}

// pauses are those between two bytes of one key: none, of a serial line, of a network.
var pauses = []time.Duration{-1, 0, time.Millisecond, 20 * time.Millisecond}

// TestKeysOfTerminals: what keyboards of real terminals send is the key that was
// pressed, however it arrives. (B3)
func TestKeysOfTerminals(t *testing.T) {
	for _, x := range []struct{ name, sent, want string }{
		{"Linux console: F1 to F5", "\x1b[[A\x1b[[B\x1b[[C\x1b[[D\x1b[[E", "f1 f2 f3 f4 f5"},
		{"Linux console: Shift-Tab", "\x1b\t", "shift+tab"},
		{"Linux console: Home, Insert, Delete, End, PgUp, PgDn",
			"\x1b[1~\x1b[2~\x1b[3~\x1b[4~\x1b[5~\x1b[6~", "home insert delete end pgup pgdown"},
		{"Linux console: F6 to F12", "\x1b[17~\x1b[18~\x1b[19~\x1b[20~\x1b[21~\x1b[23~\x1b[24~",
			"f6 f7 f8 f9 f10 f11 f12"},
		{"cursor keys", "\x1b[A\x1b[B\x1b[C\x1b[D", "up down right left"},
		{"cursor keys, application mode", "\x1bOA\x1bOB\x1bOC\x1bOD\x1bOH\x1bOF", "up down right left home end"},
		{"vt220: F1 to F4", "\x1bOP\x1bOQ\x1bOR\x1bOS", "f1 f2 f3 f4"},
		{"vt220: F1 to F5, by number", "\x1b[11~\x1b[12~\x1b[13~\x1b[14~\x1b[15~", "f1 f2 f3 f4 f5"},
		{"vt220: Help", "\x1b[28~", "f1"},
		{"vt220, eight bits", "\x9bA\x8fP\x9b6~", "up f1 pgdown"},
		{"vt220: keypad in its own mode", "\x1bOp\x1bOy\x1bOn\x1bOM", `"0" "9" "." enter`},
		{"xterm: Shift-Tab, Home, End", "\x1b[Z\x1b[H\x1b[F", "shift+tab home end"},
		{"xterm: with modifiers", "\x1b[1;5C\x1b[1;2A\x1b[3;5~\x1b[1;2P", "ctrl+right shift+up ctrl+delete shift+f1"},
		{"xterm: modifyOtherKeys", "\x1b[27;5;99~\x1b[27;2;13~", "ctrl+c shift+enter"},
		{"kitty's protocol", "\x1b[97u\x1b[99;5u\x1b[27u\x1b[13u\x1b[97;2u", `"a" ctrl+c esc enter "A"`},
		{"kitty's protocol: a key that is let go", "\x1b[97;1:3u\x1b[1;1:3A", ""},
		{"end of a line: CR, CR LF, LF, CR NUL", "a\rb\r\nc\nd\r\x00e", `"a" enter "b" enter "c" enter "d" enter "e"`},
		{"rubout and backspace", "\x7f\b", "backspace backspace"},
		{"Ctrl and letters", "\x01\x03\x07\x0c\x15\x1a", "ctrl+a ctrl+c ctrl+g ctrl+l ctrl+u ctrl+z"},
		{"Alt and a letter", "\x1bx", "alt+x"},
		{"text", "Salt! \u00e4\u20ac", `"S" "a" "l" "t" "!" " " "` + "\u00e4" + `" "` + "\u20ac" + `"`},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, pause := range pauses {
				if got := strings.Join(typed(x.sent, pause), " "); got != x.want {
					t.Errorf("with pauses of %v: %s, not %s", pause, got, x.want)
				}
			}
		})
	}
}

// TestEscapeAlone: Escape is a key of its own when nothing follows it at once, also
// when it is followed by what a person types.
func TestEscapeAlone(t *testing.T) {
	for _, x := range []struct {
		sent  string
		pause time.Duration
		want  string
	}{
		{"\x1b", 0, "esc"},
		{"\x1b\x1b", 0, "esc esc"},
		{"\x1b\x1b", 150 * time.Millisecond, "esc esc"},
		{"\x1bn", 100 * time.Millisecond, `esc "n"`},
		{"\x1b\r", 100 * time.Millisecond, "esc enter"},
		{"\x1b[", time.Second, `esc "["`},
		{"\x1b\x03", 0, "esc ctrl+c"},
		{"\x1b\x1b[B", 0, "down"},
		{"\x1b\x1b[B", 100 * time.Millisecond, "esc down"},
		{strings.Repeat("\x1b", 100), 0, strings.TrimSpace(strings.Repeat("esc ", 100))},
	} {
		if got := strings.Join(typed(x.sent, x.pause), " "); got != x.want {
			t.Errorf("%q with pauses of %v: %s, not %s", x.sent, x.pause, got, x.want)
		}
	}
}

// TestUnknownSequencesAreDroppedWhole: of what terminals send besides keys nothing is
// left, and what is typed around it is. (B3)
func TestUnknownSequencesAreDroppedWhole(t *testing.T) {
	for _, sent := range screen.Reports {
		for _, pause := range pauses {
			if got := strings.Join(typed("x"+sent+"y", pause), " "); got != `"x" "y"` {
				t.Errorf("%.40q with pauses of %v: %s", sent, pause, got)
			}
		}
	}
}

// TestSequencesWithoutEnd: what begins a sequence and does not go on swallows nothing
// that is typed afterwards, and a control key ends it at once.
func TestSequencesWithoutEnd(t *testing.T) {
	for _, begun := range []string{"\x1b[", "\x1b[1;", "\x1b[[", "\x1bO", "\x1b]0;", "\x1bP", "\x1b[M ",
		"\x1b(", "\xe4", "\x9b"} {
		var d Decoder
		now := time.Now()
		d.Feed([]byte(begun), now)
		if got := d.Feed([]byte("a"), now.Add(sequenceWait)); !reflect.DeepEqual(got,
			[]tea.Msg{tea.KeyPressMsg{Code: 'a', Text: "a"}}) {
			t.Errorf("%q, a pause, and a: %v", begun, got)
		}

		d = Decoder{}
		d.Feed([]byte(begun), now)
		got := d.Feed([]byte("\x03"), now.Add(time.Millisecond))
		if len(got) != 1 || got[0].(tea.KeyPressMsg).String() != "ctrl+c" {
			t.Errorf("%q and Ctrl-C: %v", begun, got)
		}

		if !d.Deadline().IsZero() {
			t.Errorf("%q and Ctrl-C: something is waited for", begun)
		}
	}
}

// TestBracketedPaste: a paste is one message, whole, with line feeds and without
// sequences.
func TestBracketedPaste(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 256) // 4 KiB
	for _, x := range []struct{ name, sent, want string }{
		{"a line", "\x1b[200~sca1.x\x1b[201~", "{sca1.x}"},
		{"lines", "\x1b[200~a\r\nb\rc\nd\x1b[201~", "{a\nb\nc\nd}"},
		{"4 KiB", "\x1b[200~" + long + "\x1b[201~y", "{" + long + `} "y"`},
		{"with sequences", "\x1b[200~\x1b[31mred\x1b[0m\x07\x1b[201~", "{red}"},
		{"its end never comes", "\x1b[200~cut\x1b[20", "{cut}"},
		{"too long", "\x1b[200~" + strings.Repeat("z", 2*maxPaste) + "\x1b[201~y",
			"{" + strings.Repeat("z", maxPaste) + `} "y"`},
		{"not UTF-8", "\x1b[200~a\xe4b\x1b[201~", "{ab}"},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, pause := range pauses {
				if got := strings.Join(typed(x.sent, pause), " "); got != x.want {
					t.Errorf("with pauses of %v: %.60q", pause, got)
				}
			}
		})
	}
}

// TestTextThatComesAtOnce: what comes faster than anybody types is text, also when it
// has the name of a key; what is typed stays keys.
func TestTextThatComesAtOnce(t *testing.T) {
	for _, x := range []struct{ sent, want string }{
		{"backspace", `Text "backspace"`},
		{"shift+tab\rab", `Text "shift+tab", enter, "a", "b"`},
		{"yes\x1b[Asurely not\x1b[200~p\x1b[201~", `"y", "e", "s", up, Text "surely not", {p}`},
		{"\u00e4\u00f6\u00fc\u00df\u20ac\u6f22\u5b57x", `Text "äöüß€漢字x"`},
	} {
		var d Decoder
		var got []string
		for _, m := range together(d.Feed([]byte(x.sent), time.Now())) {
			switch m := m.(type) {
			case Text:
				got = append(got, fmt.Sprintf("Text %q", string(m)))
			case tea.PasteMsg:
				got = append(got, "{"+m.Content+"}")
			case tea.KeyPressMsg:
				name := m.String()
				if m.Text != "" {
					name = fmt.Sprintf("%q", m.Text)
				}
				got = append(got, name)
			}
		}

		if got := strings.Join(got, ", "); got != x.want {
			t.Errorf("%q: %s, not %s", x.sent, got, x.want)
		}
	}
}
