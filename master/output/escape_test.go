package output

import (
	"encoding/json"
	"strings"
	"testing"

	"saltern/internal/printable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// hostile has terminal escapes in every place that a minion can fill.
func hostile() *value.Map {
	const e = "\x1b]0;owned\x07\u009b2J"
	return value.NewMap("m"+e, value.NewMap(
		"file_|-id"+e+"_|-name"+e+"_|-managed"+e, value.NewMap(
			"name", "n"+e, "result", false, "comment", "c"+e, "__run_num__", 0, "__id__", "id"+e,
			"start_time", "s"+e, "duration", "d"+e, "data", []any{"x" + e}, "warnings", []any{"w" + e},
			"changes", value.NewMap("k"+e, []any{"v" + e, value.NewMap("k2"+e, "v2"+e)}))))
}

// TestAttack26TerminalEscapes: no text of a minion moves the cursor, sets a title or clears the
// screen.
func TestAttack26TerminalEscapes(t *testing.T) {
	values := map[string]any{
		"states": hostile(),
		"text":   value.NewMap("m\x1b[2J", "a\x1b[2Jb\u009b2J"),
		"errors": value.NewMap("m", []any{"e\x1b[2J"}),
		"ret": value.NewMap("m",
			value.NewMap("a_|-b_|-c_|-d",
				value.NewMap("result", true, "comment", "", "__run_num__", 0, "changes",
					value.NewMap("out", "highstate", "ret", value.NewMap("h\x1b[2J", "x\x1b[2J"))))),
		"keys": value.NewMap("minions", []any{"a\x1b[2J"}, "minions_pre", value.NewMap("b\x1b[2J", "c\x1b[2J")),
	}

	for name, v := range values {
		for out := range outputters {
			for _, so := range []string{"full", "terse", "mixed", "filter"} {
				o := Defaults()
				o.StateOutput, o.Terminal = so, true
				s := Render(out, v, o)
				if i := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && printable.Unsafe(r) }); i >= 0 {
					t.Errorf("%s %s %s: escape in %q", name, out, so, s[max(0, i-20):min(len(s), i+20)])
				}
			}
		}
	}

	o := Defaults()
	o.StripEscapes = false
	if s := Render("nested", values["text"], o); !strings.Contains(s, "\x1b[2J") {
		t.Errorf("escapes were asked for and are gone: %q", s)
	}
}

// TestFinding22Terminal: with the outputters of salt, salt-run and salt-key no character of a
// minion moves the cursor, rings the bell, changes the direction of the text or hides text. JSON
// gives programs the unchanged text.
func TestFinding22Terminal(t *testing.T) {
	const evil = "\nweb1:\nx\a\b\b\b\x7f\u202eexe\u2066\u200b\u200f\u061c\ufeff\u2028\U000e0041"
	values := map[string]any{
		"nested": value.NewMap("db1", value.NewMap("k"+evil+"\nweb1", evil, "l", []any{evil})),
		"list":   []any{evil},
		"text":   value.NewMap("db1"+evil, evil),
		"keys":   value.NewMap("minions", []any{evil}, "minions_pre", value.NewMap(evil, evil)),
		"states": value.NewMap("m"+evil, value.NewMap(
			"file_|-id"+evil+"_|-name"+evil+"_|-managed"+evil, value.NewMap(
				"name", "n"+evil, "result", false, "comment", "c"+evil, "__run_num__", 0, "__id__", "id"+evil,
				"start_time", "s"+evil, "duration", "1", "data", []any{"x" + evil}, "warnings", []any{"w" + evil},
				"changes", value.NewMap("k"+evil, []any{"v" + evil})))),
	}

	for name, v := range values {
		for out := range outputters {
			for _, so := range []string{"full", "terse", "mixed", "filter"} {
				for _, compress := range []bool{false, true} {
					o := Defaults()
					o.StateOutput = so
					o.Terminal = true
					o.StateCompress = compress
					s := Render(out, v, o)
					if i := strings.IndexFunc(s,
						func(r rune) bool { return r != '\n' && printable.Unsafe(r) }); i >= 0 {
						t.Errorf("%s %s %s: %q", name, out, so, s[max(0, i-20):min(len(s), i+20)])
					}

					if name != "list" && name != "keys" && out != "newline_values_only" &&
						(strings.HasPrefix(s, "web1:") || strings.Contains(s, "\nweb1:")) {
						t.Errorf("%s %s: a key looks like the return of another minion:\n%s", name, out, s)
					}
				}
			}
		}
	}

	o := Defaults()
	o.Terminal, o.Color = true, true
	if got, want := Render("nested", "a\bb\tc\nd\u202e", o), "\x1b[0;32ma\\x08b\tc\x1b[0;0m\n\x1b[0;32md\\u202e\x1b[0;0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	s := Render("json", value.NewMap("k"+evil, evil), o)
	var got map[string]string
	if err := json.Unmarshal([]byte(s), &got); err != nil || got["k"+evil] != evil {
		t.Errorf("%s: %q %v", s, got, err)
	}
}

func FuzzRender(f *testing.F) {
	for _, v := range []any{hostile(), []any{int64(1), "x", nil}, "text\n",
		value.NewMap("m", []any{value.NewMap(1, 2.5)})} {
		b, err := msgpack.Marshal(v, msgpack.Modern)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := msgpack.Decode(b, msgpack.Limits{Depth: 16, Nodes: 1000})
		if err != nil {
			return
		}

		o := Defaults()
		o.StateCompress = true
		for name := range outputters {
			s := Render(name, v, o)
			if name == "nested" || name == "highstate" {
				if strings.ContainsRune(s, 0x1b) {
					t.Errorf("%s: escape in %q", name, s)
				}
			}
		}
	})
}
