package output

import (
	"strings"
	"testing"

	"saltern/master/msgpack"
)

// hostile has terminal escapes in every place that a minion can fill.
func hostile() *msgpack.Map {
	const e = "\x1b]0;owned\x07\u009b2J"
	return msgpack.NewMap("m"+e, msgpack.NewMap(
		"file_|-id"+e+"_|-name"+e+"_|-managed"+e, msgpack.NewMap(
			"name", "n"+e, "result", false, "comment", "c"+e, "__run_num__", 0, "__id__", "id"+e,
			"start_time", "s"+e, "duration", "d"+e, "data", []any{"x" + e}, "warnings", []any{"w" + e},
			"changes", msgpack.NewMap("k"+e, []any{"v" + e, msgpack.NewMap("k2"+e, "v2"+e)}))))
}

// TestAttack26TerminalEscapes: nothing that a minion sends moves the cursor,
// sets a title or clears the screen.
func TestAttack26TerminalEscapes(t *testing.T) {
	values := map[string]any{
		"states": hostile(),
		"text":   msgpack.NewMap("m\x1b[2J", "a\x1b[2Jb\u009b2J"),
		"errors": msgpack.NewMap("m", []any{"e\x1b[2J"}),
		"ret":    msgpack.NewMap("m", msgpack.NewMap("a_|-b_|-c_|-d", msgpack.NewMap("result", true, "comment", "", "__run_num__", 0, "changes", msgpack.NewMap("out", "highstate", "ret", msgpack.NewMap("h\x1b[2J", "x\x1b[2J"))))),
		"keys":   msgpack.NewMap("minions", []any{"a\x1b[2J"}, "minions_pre", msgpack.NewMap("b\x1b[2J", "c\x1b[2J")),
	}
	for name, v := range values {
		for out := range outputters {
			for _, so := range []string{"full", "terse", "mixed", "filter"} {
				o := Defaults()
				o.StateOutput, o.Terminal = so, true
				s := Render(out, v, o)
				if i := strings.IndexFunc(s, isEscape); i >= 0 {
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

func FuzzRender(f *testing.F) {
	for _, v := range []any{hostile(), []any{int64(1), "x", nil}, "text\n", msgpack.NewMap("m", []any{msgpack.NewMap(1, 2.5)})} {
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
