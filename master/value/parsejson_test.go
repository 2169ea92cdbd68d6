package value

import "testing"

func TestParseJSON(t *testing.T) {
	for text, want := range map[string]string{
		`[{"b": 1, "a": [true, null, 1.5, "x"], "b": 2}]`: "[{'b': 2, 'a': [True, None, 1.5, 'x']}]",
		` 18446744073709551615 `:                          "18446744073709551615",
		`20201010101010101010`:                            "'20201010101010101010'",
		`-9223372036854775808`:                            "-9223372036854775808",
		`1e3`:                                             "1000.0",
		`123456789012345678901234567890`:                  "",
		`[1] 2`:                                           "",
		`{"a"`:                                            "",
		`{1: 2}`:                                          "",
		`[1,]`:                                            "",
		``:                                                "",
	} {
		v, err := ParseJSON([]byte(text))
		if want == "" && err == nil || want != "" && (err != nil || Repr(v) != want) {
			t.Errorf("%s: %s, %v", text, Repr(v), err)
		}
	}
}
