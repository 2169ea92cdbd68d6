package health

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
)

func TestConditions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conditions.json")
	var out bytes.Buffer
	c := NewConditions(path, slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Now()
	say := func(text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		c.Read(now)
		return out.String()
	}

	c.Read(now) // none yet
	if out.Len() > 0 || c.Reason() != "" {
		t.Errorf("without a file: %s %q", out.String(), c.Reason())
	}

	full := `{"code":"SCA-416","title":"the shared volume is full","cause":"0.1 %\n free","next":"delete","no_writes":true}`
	log := say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `]}`)
	for _, w := range []string{"code=SCA-416", "code=SCA-427", `cause="0.1 % free"`, "next=delete", "level=ERROR"} {
		if !strings.Contains(log, w) {
			t.Errorf("%q is missing in %s", w, log)
		}
	}

	if got := c.Reason(); got != "SCA-416: the shared volume is full" {
		t.Errorf("reason %q", got)
	}

	if log := say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `]}`); log != "" {
		t.Errorf("logged again: %s", log)
	}

	say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full +
		`,{"code":"SCA-402","title":"a disk is full","no_writes":true}]}`)
	if got := c.Reason(); got != "SCA-416, SCA-402: the shared volume is full, a disk is full" {
		t.Errorf("reasons %q", got)
	}

	say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"},` + full + `]}`)
	if log := say(`{"conditions":[{"code":"SCA-427","title":"clocks differ"}]}`); !strings.Contains(log,
		"is over") || !strings.Contains(log, "SCA-416") || c.Reason() != "" {
		t.Errorf("end of a fault: %s %q", log, c.Reason())
	}

	say(`{"conditions":[` + full + `]}`)
	now = now.Add(control.ConditionsOld + time.Minute) // nobody renews it
	c.Read(now)
	if c.Reason() != "" {
		t.Errorf("an old file counts: %q", c.Reason())
	}

	now = time.Now()

	for _, bad := range []string{"{", strings.Repeat("x", control.MaxConditionFile+1)} {
		if log := say(bad); !strings.Contains(log, "not known") || c.Reason() != "" {
			t.Errorf("%.20q: %s %q", bad, log, c.Reason())
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
	if len(c.known) != control.MaxConditions {
		t.Errorf("%d of 100 are kept", len(c.known))
	}

	none := NewConditions("", slog.New(slog.DiscardHandler))
	none.Read(now)
	if none.Reason() != "" {
		t.Error("without the option")
	}
}
