package saltlog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "master")
	for name, tt := range map[string]struct {
		console, file []string
		path          string
		want          [2]string // on the console, in the file
		err           string
	}{
		"nothing said":       {nil, nil, path, [2]string{"warn", "warn"}, ""},
		"first that is said": {[]string{"", "info", "debug"}, []string{"", "", "error"}, path, [2]string{"info warn", ""}, ""},
		"quiet file":         {[]string{"info"}, []string{"quiet"}, path, [2]string{"info warn", ""}, ""},
		"no file":            {nil, []string{"info"}, "udp://log:514", [2]string{"warn", ""}, ""},
		"wrong console":      {[]string{"loud"}, nil, path, [2]string{}, "loud"},
		"wrong file":         {nil, []string{"loud"}, path, [2]string{}, "loud"},
		"no folder":          {nil, nil, "/dev/null/logs/master", [2]string{}, "folder"},
	} {
		_ = os.Remove(path)
		var console bytes.Buffer
		log, f, err := Open("salt.test", &console, Output{Levels: tt.console, Format: "%(message)s"}, tt.path, Output{Levels: tt.file, Format: "%(message)s"})
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		log.Log(t.Context(), slog.LevelInfo, "info")
		log.Log(t.Context(), slog.LevelWarn, "warn")
		var text []byte
		if f != nil {
			text, err = os.ReadFile(path)
			if cerr := f.Close(); err != nil || cerr != nil {
				t.Errorf("%s: %v, %v", name, err, cerr)
			}
		}
		got := [2]string{strings.Join(strings.Fields(console.String()), " "), strings.Join(strings.Fields(string(text)), " ")}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
