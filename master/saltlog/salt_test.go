package saltlog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// asSalt formats a record of Salt with each format, and with each date format. The result is null
// where Python refuses the format. It reads {"formats": [...], "dates": [...], "when": seconds}.
const asSalt = `
import json, logging, sys, time
import salt._logging.impl as impl
ask = json.load(sys.stdin)
def written(fmt, datefmt):
    r = impl.SaltColorLogRecord("salt.test", logging.WARNING, "/src/of/module.py", 42, "signed %s", ("in",), None, "work", None)
    r.created = ask["when"]; r.msecs = 6.0; r.process = ask["pid"]; r.thread = ask["pid"]
    r.relativeCreated = 0.0
    r.bracketprocess = "[%5d]" % r.process
    r.colorprocess = "%s[%5d]%s" % (impl.LOG_COLORS["process"], r.process, impl.TextFormat("reset"))
    r.jid = "[JID: 1]"; r.minion_id = "[web1]"
    try:
        return logging.Formatter(fmt, datefmt=datefmt).format(r)
    except Exception:
        return None
json.dump({
    "formats": [written(f, "%H:%M:%S") for f in ask["formats"]],
    "dates": [written("%(asctime)s", d) for d in ask["dates"]],
}, sys.stdout)
`

// TestFormatAsSalt compares the results for random formats and date formats with those of Salt's
// own records and Python's formatter.
func TestFormatAsSalt(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	when := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	ask := struct {
		Formats []string `json:"formats"`
		Dates   []string `json:"dates"`
		When    float64  `json:"when"`
		PID     int      `json:"pid"`
	}{When: float64(when.UnixMilli()) / 1e3, PID: os.Getpid()}

	random := rand.New(rand.NewPCG(3, 8))
	for range 2000 {
		ask.Formats = append(ask.Formats, randomFormat(random))
		ask.Dates = append(ask.Dates, randomDate(random))
	}

	ask.Dates = append(ask.Dates, "%-d.%-m.%Y %-H:%M", "%_d %_H %-k %_j %-j %-y %_U", "%^a %^b %^p %-a",
		"%é %-é", "%", "%-", "%-%")
	ask.Formats = append(ask.Formats, DefaultConsole, DefaultFile, "100%% %(message)s", "%(message)", "%s", "text", "%")

	in, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}

	script := filepath.Join(t.TempDir(), "compare.py")
	if err := os.WriteFile(script, []byte(asSalt), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), python, script)
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(string(in))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	var salt struct{ Formats, Dates []*string }
	if err := json.Unmarshal(out, &salt); err != nil {
		t.Fatal(err)
	}

	l := &line{
		time:     when,
		level:    slog.LevelWarn,
		logger:   "salt.test",
		function: "package.work",
		file:     "/src/of/module.py",
		number:   42,
		message:  "signed in",
		jid:      "[JID: 1]",
		minion:   "[web1]",
	}

	written, refused := 0, 0
	for i, want := range salt.Formats {
		f, err := compile(ask.Formats[i])
		switch {
		case err != nil:
			refused++
			if want != nil && !strings.Contains(err.Error(), "cannot be written as") &&
				!strings.Contains(err.Error(), "beside the flag 0") {
				t.Errorf("%q is refused (%v), Salt writes %q", ask.Formats[i], err, *want)
			}
		case want == nil:
			t.Errorf("Salt refuses %q, here %q", ask.Formats[i], f.formatLine(l, "%H:%M:%S"))
		default:
			written++
			if got := f.formatLine(l, "%H:%M:%S"); got != *want {
				t.Errorf("%q: %q, in Salt %q", ask.Formats[i], got, *want)
			}
		}
	}

	for i, want := range salt.Dates {
		if got := strftime(when, ask.Dates[i]); want == nil || got != *want {
			t.Errorf("date %q: %q, in Salt %v", ask.Dates[i], got, want)
		}
	}

	t.Logf("%d formats are written as by Salt, %d refused, %d dates", written, refused, len(salt.Dates))
	if written < 500 || refused < 100 {
		t.Errorf("%d written, %d refused: the comparison says little", written, refused)
	}
}

func randomFormat(random *rand.Rand) string {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	var b strings.Builder
	for range 1 + random.IntN(4) {
		b.WriteString(pick("", " ", "[", "%%", "é", ": "))
		name := pick("asctime", "created", "msecs", "name", "levelname", "levelno", "pathname", "filename", "module", "funcName",
			"lineno", "process", "processName", "threadName", "message", "jid", "minion_id", "bracketname", "bracketlevel",
			"bracketprocess", "colorname", "colorlevel", "colorprocess", "colormsg", "message", "levelname", "nosuch")
		if name == "nosuch" && random.IntN(4) > 0 {
			name = "message"
		}

		conversion := pick(strings.Split("ssssssssssssdfegxiry", "")...)
		fmt.Fprintf(&b, "%%(%s)%s%s%s%s", name, pick("", "", "", "-", "0", "+", " ", "#"),
			pick("", "", "3", "8", "17"), pick("", "", "", ".2", ".0"), conversion)
	}

	return b.String()
}

func randomDate(random *rand.Rand) string {
	const directives = "aAbBcdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZC%"
	var b strings.Builder
	for range 1 + random.IntN(5) {
		b.WriteString("-2006 "[random.IntN(6):])
		b.WriteString("%" + string(directives[random.IntN(len(directives))]))
	}
	return b.String()
}

// FuzzFormat: every format is either accepted or refused, and the length of a line stays bounded.
func FuzzFormat(f *testing.F) {
	for _, seed := range []string{DefaultConsole, DefaultFile, "%(message)999999999s", "%(msecs)-+0#3.9d",
		"%%", "%(x", "%(lineno)*d", "%(message)hlLs"} {
		f.Add(seed, "%H:%M:%S.%f")
	}

	f.Fuzz(func(t *testing.T, text, date string) {
		read, err := compile(text)
		if err != nil {
			return
		}

		l := &line{time: started, function: "a.b", message: "m"}
		fields := strings.Count(text, "%(")
		got := read.formatLine(l, date)
		if most := len(text) + fields*(maxWidth*utf8.UTFMax+400+maxFormat*32); len(got) > most {
			t.Errorf("%d bytes of %q", len(got), text)
		}
	})
}
