package master

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConditions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conditions.json")
	var out bytes.Buffer
	c := newConditions(path, slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Now()
	say := func(text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		c.read(now)
		return out.String()
	}
	c.read(now) // none yet
	if out.Len() > 0 || c.reason() != "" {
		t.Errorf("without a file: %s %q", out.String(), c.reason())
	}
	full := `{"code":"SCA-416","title":"the shared volume is full","cause":"0.1 %\n free","next":"delete","no_writes":true}`
	log := say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `]}`)
	for _, w := range []string{"code=SCA-416", "code=SCA-427", `cause="0.1 %  free"`, "next=delete", "level=ERROR"} {
		if !strings.Contains(log, w) {
			t.Errorf("%q is missing in %s", w, log)
		}
	}
	if got := c.reason(); got != "SCA-416: the shared volume is full" {
		t.Errorf("reason %q", got)
	}
	if log := say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `]}`); log != "" {
		t.Errorf("logged again: %s", log)
	}
	say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `,{"code":"SCA-402","title":"a disk is full","no_writes":true}]}`)
	if got := c.reason(); got != "SCA-416, SCA-402: the shared volume is full, a disk is full" {
		t.Errorf("reasons %q", got)
	}
	say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `]}`)
	if log := say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"}]}`); !strings.Contains(log, "is over") || !strings.Contains(log, "SCA-416") || c.reason() != "" {
		t.Errorf("end of a fault: %s %q", log, c.reason())
	}
	say(`{"conditions":[` + full + `]}`)
	now = now.Add(conditionsOld + time.Minute) // nobody renews it
	if c.read(now); c.reason() != "" {
		t.Errorf("an old file counts: %q", c.reason())
	}
	now = time.Now()

	for _, bad := range []string{"{", strings.Repeat("x", maxConditionFile+1)} {
		if log := say(bad); !strings.Contains(log, "not known") || c.reason() != "" {
			t.Errorf("%.20q: %s %q", bad, log, c.reason())
		}
		if log := say(bad); log != "" {
			t.Errorf("logged again: %s", log)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`{"code":"C%d","title":%q}`, i, strings.Repeat("é", 200)))
	}
	say(`{"conditions":[` + strings.Join(many, ",") + `]}`)
	if len(c.known) != maxConditions {
		t.Errorf("%d of 100 are kept", len(c.known))
	}
	none := newConditions("", slog.New(slog.DiscardHandler))
	if none.read(now); none.reason() != "" {
		t.Error("without the option")
	}
}
