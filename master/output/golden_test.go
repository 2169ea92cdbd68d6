package output

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"saltern/internal/printable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

type goldenCase struct {
	Name, Out, Value, Want string
	Opts                   map[string]any
	Retcode                int
}

func (c goldenCase) options(t *testing.T) Options {
	t.Helper()
	o := Defaults()
	o.Retcode = c.Retcode
	for k, v := range c.Opts {
		switch k {
		case "color":
			o.Color = v.(bool)
		case "output_indent":
			o.Indent = Indent{Set: true, Pretty: v == "pretty"}
			if f, ok := v.(float64); ok {
				o.Indent.Width = int(f)
			}
		case "nested_indent":
			o.NestedIndent = int(v.(float64))
		case "state_output":
			o.StateOutput = v.(string)
		case "state_verbose":
			o.StateVerbose = v.(bool)
		case "state_output_diff":
			o.StateDiff = v.(bool)
		case "state_output_profile":
			o.StateProfile = v.(bool)
		case "state_output_pct":
			o.StatePercent = v.(bool)
		case "state_tabular":
			o.StateTabular = v.(bool)
		case "state_compress_ids":
			o.StateCompress = v.(bool)
		case "state_output_exclude":
			for _, e := range v.([]any) {
				o.StateExclude = append(o.StateExclude, e.(string))
			}
		case "state_output_terse":
			o.StateTerse = strings.Split(v.(string), ",")
		default:
			name, ok := strings.CutPrefix(k, "out.table.")
			if !ok {
				t.Fatalf("option %s", k)
			}

			if f, number := v.(float64); number {
				v = int64(f)
			}

			if o.Table == nil {
				o.Table = map[string]any{}
			}

			o.Table[name] = v
		}
	}

	return o
}

var color = regexp.MustCompile("\x1b\\[[0-9;]*m")

// safe returns the text that Saltern shows where Salt prints characters that control a terminal, or
// a key that breaks its line. In a highstate, an error that breaks its line (finding m12), and all
// warnings after the first, are indented.
func safe(s string) string {
	var b strings.Builder
	end := 0
	for _, i := range append(color.FindAllStringIndex(s, -1), []int{len(s), len(s)}) {
		b.WriteString(printable.Text(s[end:i[0]]) + s[i[0]:i[1]])
		end = i[1]
	}
	return strings.ReplaceAll(b.String(), "multi\nline", `multi\nline`)
}

// TestGolden compares with what Salt 3008.3 prints (testdata/golden.py).
func TestGolden(t *testing.T) { golden(t, "testdata/golden.json", 1000) }

// TestGoldenOfOldReleases compares the outputters that 3008 lacks with those of 3007.15.
func TestGoldenOfOldReleases(t *testing.T) { golden(t, "testdata/golden-3007.json", 200) }

func golden(t *testing.T, file string, least int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var cases []goldenCase
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < least {
		t.Fatalf("only %d cases", len(cases))
	}

	for _, c := range cases {
		t.Run(fmt.Sprintf("%s/%s/%v", c.Out, c.Name, c.Opts), func(t *testing.T) {
			raw, err := hex.DecodeString(c.Value)
			if err != nil {
				t.Fatal(err)
			}

			v, err := msgpack.Decode(raw, msgpack.DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}

			before := value.Repr(v)
			want := c.Want
			switch c.Out {
			case "nested", "newline_values_only":
				want = safe(want)
			case "table", "profile":
				if strings.Contains(before, `\x`) {
					return // shown as escapes, the columns are wider
				}
				want = strings.ReplaceAll(want, "multi\nline:", `multi\nline:`)
			case "highstate":
				want = strings.ReplaceAll(want, "\nare not allowed", "\n    are not allowed")
			}

			got := Render(c.Out, v, c.options(t))
			if strings.HasPrefix(c.Name, "hs_st_warnings") {
				indent := regexp.MustCompile(`\n {14}`)
				got, want = indent.ReplaceAllString(got, "\n"), indent.ReplaceAllString(want, "\n")
			}

			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s\nquoted got:  %.300q\nquoted want: %.300q", got, want, got, want)
			}

			if value.Repr(v) != before {
				t.Error("the value was changed")
			}
		})
	}
}
