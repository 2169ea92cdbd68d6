package diff

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"saltern/test/check"
)

// TestLinesAreBounded: lines are looked up in one pass of each file, until time or bytes are used up.
func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small := dir + "/small.sls"
	large := dir + "/large.sls"
	check.Must(t, os.WriteFile(small, []byte("a: 1\nb: {c: 2}\n"), 0o644))
	check.Must(t, os.WriteFile(large, []byte(strings.Repeat("# x\n", maxLineFile/4)+"a: 1\n"), 0o644))
	group := func(file string, path ...string) *readersGroup {
		return &readersGroup{finding: finding{Sources: []findingSource{{File: file, keyPath: path}}}}
	}
	groups := []*readersGroup{group(small, "a"), group(small, "b", "c"), group(large, "a"), group("", "x")}

	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), "[1 ][2 ][0 the line was not looked up: the files are too large][0 ]"},
		{ended, "[0 the line was not looked up: no time left][0 the line was not looked up: no time left]" +
			"[0 the line was not looked up: no time left][0 ]"},
	} {
		r := &readersReport{}
		for _, g := range groups {
			r.Groups = append(r.Groups, &readersGroup{finding: g.finding})
		}
		r.date(tt.ctx)
		got := ""
		for _, g := range r.Groups {
			got += fmt.Sprintf("[%d %s]", g.origins[0].line, g.origins[0].fault)
		}
		if got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// TestReadersOfKeysShownAlike: two keys of which the same is shown are two groups. The keys of a file beyond
// those that are listed are counted.
func TestReadersOfKeysShownAlike(t *testing.T) {
	t.Parallel()
	keys := ""
	for i := range maxFindings + 3 {
		keys += fmt.Sprintf("k%d: 1\n", i)
	}
	s, _ := newService(t, map[string]string{
		"top.sls":  "base: {'*': [a, many]}\n",
		"a.sls":    "https://u:one@example.com/: 1\nhttps://u:two@example.com/: 1\n",
		"many.sls": keys,
	}, manyMinions(2), nil)

	report := readers(t, s, "file", "a")
	if text := report.Text(false); strings.Contains(text, "one") {
		t.Errorf("a password is shown: %s", text)
	}
	report = readers(t, s, "key", "https*")
	if len(report.Groups) != 2 || report.Groups[0].count != 2 {
		t.Errorf("want two groups of two minions\n%s", report.Text(false))
	}
	if report := readers(t, s, "file", "many"); report.More != 2*3 {
		t.Errorf("%d keys are not shown, want three of each minion", report.More)
	}
}
