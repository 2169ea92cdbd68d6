package conf

import (
	"fmt"
	"log/slog"
	"strings"
)

// unused is an option that is read and not acted upon.
type unused struct {
	level slog.Level
	why   string
}

// unusedOptions reads unused.txt.
func unusedOptions() (map[string]unused, error) {
	b, err := tables.ReadFile("unused.txt")
	if err != nil {
		return nil, err
	}
	out := map[string]unused{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 {
			return nil, fmt.Errorf("unused.txt: option %s has no reason", f[0])
		}
		u := unused{level: slog.LevelInfo, why: f[2]}
		switch f[1] {
		case "warn":
			u.level = slog.LevelWarn
		case "info":
		default:
			return nil, fmt.Errorf("unused.txt: option %s has the level %q", f[0], f[1])
		}
		if _, twice := out[f[0]]; twice {
			return nil, fmt.Errorf("unused.txt: option %s is listed twice", f[0])
		}
		out[f[0]] = u
	}
	return out, nil
}

// unusedNote tells of an option of the files that this master does not use,
// unless the value is the default.
func (a *assembly) unusedNote(name string, v any) {
	u, ok := a.unused[name]
	if !ok {
		return
	}
	if d, has := a.opts.Get(name); has && equal(d, v) || !has && empty(v) {
		return
	}
	a.remark(u.level, name, "option is not used by this master: %s", u.why)
}
