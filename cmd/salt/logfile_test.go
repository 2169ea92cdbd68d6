package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKeyLogFileIsObeyed: salt-key writes its log to key_logfile, a file or a syslog, by the level
// of log files; --log-file names another file.
func TestKeyLogFileIsObeyed(t *testing.T) {
	pem := pems(t, 1)[0]
	pending := map[string]string{"m1": "minions_pre"}

	t.Run("file", func(t *testing.T) {
		h := newHouse(t, nil, "log_level_logfile: info\n")
		h.setOption("key_logfile", filepath.Join(h.dir, "log", "key"))
		h.keys(pending, pem)

		h.run("salt-key", "-y", "-a", "m1")
		h.wantLogged("log/key", "[salt.key", "[INFO    ]", "Key accepted", "minion=m1", "fingerprint=")
		h.wantNotLogged("stderr", h.errs)
	})

	t.Run("--log-file comes first", func(t *testing.T) {
		h := newHouse(t, nil, "")
		h.setOption("key_logfile", filepath.Join(h.dir, "key"))
		h.keys(pending, pem)

		h.run("salt-key", "-y", "-a", "m1", "--log-file", filepath.Join(h.dir, "given"), "--log-file-level=info")
		h.wantLogged("given", "Key accepted", "minion=m1")
		if _, err := os.Stat(filepath.Join(h.dir, "key")); err == nil {
			t.Error("key_logfile is written in spite of --log-file")
		}
	})

	t.Run("warnings by default", func(t *testing.T) {
		h := newHouse(t, nil, "")
		h.setOption("key_logfile", filepath.Join(h.dir, "key"))
		h.keys(pending, pem)

		h.run("salt-key", "-y", "-a", "m1")
		h.wantLogged("key")
		text, _ := os.ReadFile(filepath.Join(h.dir, "key"))
		h.wantNotLogged("key", string(text))

		h.run("salt-key", "-d", "m1") // nobody answers its question
		h.wantLogged("key", "[ERROR   ]", "EOF when reading a line")
	})

	t.Run("syslog", func(t *testing.T) {
		listener, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()

		h := newHouse(t, nil, "log_level_logfile: info\n")
		h.setOption("key_logfile", "udp://"+listener.LocalAddr().String()+"/LOG_DAEMON")
		h.keys(pending, pem)
		h.run("salt-key", "-y", "-a", "m1")

		packet := make([]byte, 4096)
		_ = listener.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _, err := listener.ReadFrom(packet)
		if err != nil || !strings.Contains(string(packet[:n]), "Key accepted") || !strings.HasPrefix(string(packet[:n]), "<30>") {
			t.Errorf("the syslog has %q, %v", packet[:n], err)
		}
	})
}

// TestKeyLogFileThatFails: a key_logfile that cannot be written is named, and the key is changed all
// the same. A file of the command line ends the tool, as Salt's.
func TestKeyLogFileThatFails(t *testing.T) {
	h := newHouse(t, nil, "")
	h.setOption("key_logfile", filepath.Join(h.dir, "master", "key")) // below a file
	h.keys(map[string]string{"m1": "minions_pre"}, pems(t, 1)[0])

	if code := h.run("salt-key", "-y", "-a", "m1"); code != 0 || !strings.Contains(h.out, "Key for minion m1 accepted.") ||
		!strings.Contains(h.errs, "[WARNING ] key_logfile is not written") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, h.out, h.errs)
	}

	given := filepath.Join(h.dir, "master", "other")
	for _, tool := range []string{"salt", "salt-key", "salt-run", "salt-cp"} {
		if code := h.run(tool, "--log-file", given); code != 2 || !strings.Contains(h.errs, "Failed to open log file") {
			t.Errorf("%s: exit code %d, stderr %q", tool, code, h.errs)
		}
	}
}

// TestLogFilesAsSalt: our salt-key and Salt's write to the same one of two log files, by the
// configuration and by the command line.
func TestLogFilesAsSalt(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}
	pem := pems(t, 1)[0]

	for name, words := range map[string][]string{
		"configuration":    nil,
		"--log-file":       {"--log-file=@/given"},
		"--log-file-level": {"--log-file-level=quiet"},
	} {
		t.Run(name, func(t *testing.T) {
			var written [2]string
			for i := range written {
				h := newHouse(t, nil, "log_level_logfile: debug\n")
				h.setOption("key_logfile", filepath.Join(h.dir, "key"))
				h.setOption("log_file", filepath.Join(h.dir, "other"))
				h.keys(map[string]string{"m1": "minions_pre"}, pem)

				args := []string{"-y", "-a", "m1"}
				for _, w := range words {
					args = append(args, strings.ReplaceAll(w, "@", h.dir))
				}

				if i == 0 {
					h.run("salt-key", args...)
				} else {
					tool := exec.Command(filepath.Join(filepath.Dir(python), "salt-key"), append([]string{"-c", h.dir}, args...)...)
					if out, err := tool.CombinedOutput(); err != nil {
						t.Fatalf("Salt's salt-key: %v\n%s", err, out)
					}
				}

				for _, file := range []string{"key", "other", "given"} {
					if info, err := os.Stat(filepath.Join(h.dir, file)); err == nil && info.Size() > 0 {
						written[i] += file + " "
					}
				}
			}

			if written[0] != written[1] {
				t.Errorf("ours writes %q, Salt's %q", written[0], written[1])
			}
		})
	}
}

// setOption adds an option to the master's configuration.
func (h *house) setOption(name, value string) {
	h.t.Helper()
	file, err := os.OpenFile(filepath.Join(h.dir, "master"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(name + ": " + value + "\n"); err != nil {
		h.t.Fatal(err)
	}
}

// wantLogged reports an error unless one line of a file has all of the texts.
func (h *house) wantLogged(file string, texts ...string) {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.dir, file))
	if err != nil {
		h.t.Error(err)
		return
	}

	for line := range strings.Lines(string(b) + "\n") {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return
		}
	}
	h.t.Errorf("no line of %s has %q:\n%s", file, texts, b)
}

// wantNotLogged reports an error if a text has lines of a log about keys.
func (h *house) wantNotLogged(name, text string) {
	h.t.Helper()
	if strings.Contains(text, "Key accepted") {
		h.t.Errorf("%s has lines that are below its level: %q", name, text)
	}
}
