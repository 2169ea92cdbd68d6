package diff

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/value"
	"saltern/test/check"
)

// TestAnswers: each form has its keys in the order in which tools print them, and is refused if it is
// none.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for form, keys := range map[string]string{
		"text":        "text code",
		"colour":      "text code",
		"junit":       "text code",
		"text,junit":  "text junit code",
		"data,junit":  "report junit code",
		"":            "from to code",
		"data":        "",
		"xml":         "",
		"xml,junit":   "",
		"junit,text":  "",
		"text,junit,": "",
	} {
		r, err := requestOf(pillarDiff, nil, value.NewMap("ref", "x", "format", form))
		if keys == "" {
			if err == nil {
				t.Errorf("%q is no form, and taken", form)
			}
			continue
		}
		check.Must(t, err)

		answer, err := newReport(r, 3, nil).answer(r)
		check.Must(t, err)
		got := strings.Join(answer.(*value.Map).Keys(), " ")
		if !strings.HasPrefix(got+" ", keys+" ") {
			t.Errorf("%q has the keys %s, want %s", form, got, keys)
		}
		junit := strings.Contains(fmt.Sprint(answer), "<testsuite")
		if junit != strings.Contains(form, "junit") {
			t.Errorf("%q: %v", form, answer)
		}
	}
}
