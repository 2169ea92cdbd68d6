package conf

import (
	"io"
	"log/slog"
	"strings"
	"testing"
)

// TestLogOptions (M5): Load refuses a log file that cannot be written, and names the fault in a
// format or a level.
func TestLogOptions(t *testing.T) {
	for in, want := range map[string]string{
		"log_file: udp://127.0.0.1:5514/LOG_USER":    "",
		"log_file: file:///dev/log":                  "",
		"log_file: tcp://h/LOG_LOCAL3":               "",
		"log_file: udp://h/LOG_NONE":                 "there is no facility",
		"log_file: file://dev/log":                   "three slashes",
		"log_file: syslog://h":                       "there are file://",
		"api_logfile: udp://h/x":                     "there is no facility",
		"log_fmt_console: '%(nosuch)s'":              `there is no field "nosuch"`,
		"log_fmt_logfile: '%(message)s %(jid)s'":     "",
		"log_fmt_logfile: plain":                     "names no field",
		"log_fmt_logfile: [a]":                       "expected text, found a list",
		"log_fmt_jid: '%d'":                          "after % comes the name",
		"log_granular_levels: {salt.key: debug}":     "",
		"log_granular_levels: {salt.key: loud}":      "error is used",
		"log_granular_levels: {salt.key: [x]}":       "salt.key",
		"log_granular_levels: {salt: 10, '': error}": "",
	} {
		t.Run(in, func(t *testing.T) {
			m, err := loader().Load(write(t, map[string]string{"master": in + "\n"}))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				for _, n := range m.Notes {
					if n.Level >= slog.LevelWarn && strings.Contains(n.Option, "log") {
						got += n.String()
					}
				}
			}

			if want == "" && got != "" || !strings.Contains(got, want) ||
				got != "" && !strings.Contains(got, "master:1") {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestLogFileOfNoName: a log_file without a name means Salt's default file, as in Salt's programs.
func TestLogFileOfNoName(t *testing.T) {
	m, err := loader().Load(write(t,
		map[string]string{"master": "log_file: ''\nlog_granular_levels: {salt.key: 10}\n"}))
	if err != nil {
		t.Fatal(err)
	}
	if m.LogFile != "/var/log/salt/master" {
		t.Errorf("%q", m.LogFile)
	}
	c := m.LogConfig("salt.master", m.LogFile, LogFlags{File: "/x", FileLevel: "info"}, io.Discard)
	if c.Path != "/x" || c.File.Levels[0] != "info" || c.Granular["salt.key"] != int64(10) || c.JID == "" {
		t.Errorf("%+v", c)
	}
}
