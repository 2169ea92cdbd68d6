package saltlog

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

func TestParseAddress(t *testing.T) {
	for name, want := range map[string]string{
		"/var/log/salt/master":         "",
		"relative":                     "",
		"a/b://c":                      "",
		"file:///dev/log":              "[unixgram unix] /dev/log 1",
		"file:///dev/log/LOG_DAEMON":   "[unixgram unix] /dev/log 3",
		"file:///dev/log/log_local7":   "[unixgram unix] /dev/log 23",
		"FILE:///run/x/LOG_AUTHPRIV":   "[unixgram unix] /run/x 10",
		"udp://log.example.com":        "[udp] log.example.com:514 1",
		"udp://10.0.0.1:5514/LOG_KERN": "[udp] 10.0.0.1:5514 0",
		"tcp://[fe80::1]:601/LOG_MAIL": "[tcp] [fe80::1]:601 2",
		"tcp://h/LOG_NO":               "no facility",
		"udp://h/":                     "no facility",
		"udp://h/daemon":               "no facility",
		"udp://:514":                   "no host",
		"udp://h:0":                    "not a port",
		"udp://h:70000":                "not a port",
		"udp://h:x":                    "no URL",
		"file://dev/log":               "three slashes",
		"file:///":                     "no socket",
		"syslog://h":                   "there are file://",
		"http://h/x":                   "there are file://",
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ParseAddress(name)
			got := ""
			switch {
			case err != nil:
				got = err.Error()
			case a != nil:
				got = fmt.Sprintf("%v %s %d", a.Networks, a.Address, a.Facility)
			}

			if got != want && (err == nil || !strings.Contains(got, want)) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"file:///dev/log/LOG_DAEMON", "udp://[::1]:5/LOG_USER", "tcp://h", "x://y",
		"/var/log"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		a, err := ParseAddress(name)
		if err == nil && a != nil && (len(a.Networks) == 0 || a.Address == "" || a.Facility < 0 || a.Facility > 23) {
			t.Errorf("%q gives %+v", name, a)
		}
	})
}

// sinkOf is a listener of a syslog that collects what comes.
type sinkOf struct {
	mu    sync.Mutex
	lines []string
	end   func()
}

func (s *sinkOf) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		s.lines = append(s.lines, line)
	}
}

func (s *sinkOf) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// listen opens a listener. For udp and tcp it uses a free port unless the address is given.
func listen(t *testing.T, network, address string) (*sinkOf, string) {
	t.Helper()
	s := &sinkOf{}
	var readers sync.WaitGroup
	if network == "udp" || network == "unixgram" {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}

		readers.Go(func() {
			b := make([]byte, 1<<16)
			for {
				n, _, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				s.add(string(b[:n]))
			}
		})

		s.end = sync.OnceFunc(func() { _ = c.Close(); readers.Wait() })
		t.Cleanup(s.end)
		return s, c.LocalAddr().String()
	}

	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var open []net.Conn
	readers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			mu.Lock()
			open = append(open, c)
			mu.Unlock()

			readers.Go(func() {
				var text bytes.Buffer
				b := make([]byte, 1<<16)
				for {
					n, err := c.Read(b)
					text.Write(b[:n])
					for bytes.IndexByte(text.Bytes(), 0) >= 0 {
						line, _ := text.ReadString(0)
						s.add(line)
					}

					if err != nil {
						return
					}
				}
			})
		}
	})

	s.end = sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		readers.Wait()
	})

	t.Cleanup(s.end)
	return s, l.Addr().String()
}

// openSyslog opens a log at the level info that goes to a syslog.
func openSyslog(t *testing.T, path string) (*slog.Logger, *Syslog, *logged.Buffer) {
	t.Helper()
	stderr := &logged.Buffer{}
	log, target, err := Open(Config{
		Name:    "salt.test",
		Stderr:  stderr,
		Console: Output{Levels: []string{"quiet"}},
		File:    Output{Levels: []string{"debug"}, Format: "%(levelname)s %(message)s"},
		Path:    path,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = target.Close() })
	return log, target.(*Syslog), stderr
}

// TestSyslog (M5): lines reach a syslog over each kind of socket, in order, with the priority of
// Python's handler.
func TestSyslog(t *testing.T) {
	for _, network := range []string{"unixgram", "unix", "udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if strings.HasPrefix(network, "unix") {
				address = filepath.Join(t.TempDir(), "log")
			}

			sink, at := listen(t, network, address)
			path := network + "://" + at + "/LOG_DAEMON"
			if strings.HasPrefix(network, "unix") {
				path = "file://" + at + "/LOG_DAEMON"
			}

			log, _, _ := openSyslog(t, path)
			log.Debug("one")
			log.Info("two")
			log.Warn("three")
			log.Error("four", "key", "a\nb")
			log.Log(t.Context(), LevelCritical, "five")
			log.Log(t.Context(), LevelProfile, "six") // a warning, as by SysLogHandler.mapPriority
			want := []string{
				"<31>DEBUG one", "<30>INFO two", "<28>WARNING three", `<27>ERROR four key="a\nb"`, "<26>CRITICAL five", "<28>PROFILE six",
			}
			await.That(t, "all lines", func() bool { return slices.Equal(sink.got(), want) })
		})
	}
}

// TestSyslogAway (M5): while the syslog cannot be reached, no caller waits for it, and that is
// reported once. The waiting lines are sent when it can be reached again, in order, and none is
// lost within the bound.
func TestSyslogAway(t *testing.T) {
	for _, network := range []string{"unixgram", "tcp"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unixgram" {
				address = filepath.Join(t.TempDir(), "log")
			}

			sink, at := listen(t, network, address)
			path := "tcp://" + at
			if network == "unixgram" {
				path = "file://" + at
			}

			log, syslog, stderr := openSyslog(t, path)
			log.Info("before")
			await.That(t, "the first line", func() bool { return len(sink.got()) == 1 })

			sink.end()
			log.Info("into the gap") // may be lost with a connection that is just breaking
			await.That(t, "the syslog is said to be away", func() bool {
				log.Info("probe")
				return strings.Contains(stderr.String(), "is away")
			})

			begun := time.Now()
			for i := range 1000 {
				log.Info(fmt.Sprint("line ", i))
			}

			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("1,000 lines took %v", took)
			}

			_ = os.Remove(at)
			again, _ := listen(t, network, at)
			await.That(t, "the last line", func() bool {
				got := again.got()
				return len(got) > 0 && strings.HasSuffix(got[len(got)-1], "line 999")
			})

			i := 0
			for _, line := range again.got() {
				if strings.HasSuffix(line, fmt.Sprint("line ", i)) {
					i++
				}
			}

			if i != 1000 || syslog.Lost() != 0 {
				t.Errorf("%d of 1,000 lines in order, %d lost", i, syslog.Lost())
			}

			if n := strings.Count(stderr.String(), "is away"); n != 1 {
				t.Errorf("said %d times: %s", n, stderr)
			}
		})
	}
}

// TestSyslogOverflow: when too many lines wait, the newest are dropped and counted, and a line
// reports the number. The end of the program does not wait for a syslog that cannot be reached.
func TestSyslogOverflow(t *testing.T) {
	at := filepath.Join(t.TempDir(), "log")
	log, syslog, _ := openSyslog(t, "file://"+at)
	const all = maxWaiting + 500
	for i := range all {
		log.Info(fmt.Sprint("line ", i))
	}

	lost := syslog.Lost()
	if lost < 490 || lost > 500 { // one is being sent
		t.Fatalf("%d lines lost", lost)
	}

	sink, _ := listen(t, "unixgram", at)
	await.That(t, "all lines that waited", func() bool { return int64(len(sink.got())) >= all-lost+1 })
	text := strings.Join(sink.got(), "\n")
	if !strings.Contains(text, fmt.Sprintf("%d lines of this log are lost", lost)) ||
		strings.Contains(text, fmt.Sprint("line ", all-1)) {
		t.Errorf("the loss is not said, or the newest line was kept")
	}

	away, closing, stderr := openSyslog(t, "tcp://127.0.0.1:1")
	away.Info("nobody hears this")
	begun := time.Now()
	_ = closing.Close()

	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the end took %v", took)
	}

	if !strings.Contains(stderr.String(), "1 lines are lost") {
		t.Errorf("the loss at the end is not said: %s", stderr)
	}

	away.Info("after the end")
}

// TestSyslogClosedDuringALine: the end of a program sends the line that was on its way, before those that wait.
func TestSyslogClosedDuringALine(t *testing.T) {
	at := filepath.Join(t.TempDir(), "log")
	log, syslog, stderr := openSyslog(t, "file://"+at)
	log.Info("on its way")
	await.That(t, "the first try", func() bool { return strings.Contains(stderr.String(), "is away") })
	log.Info("waits")

	sink, _ := listen(t, "unixgram", at)
	check.Must(t, syslog.Close())
	await.That(t, "both lines", func() bool { return len(sink.got()) == 2 })
	if got := sink.got(); !slices.Equal(got, []string{"<14>INFO on its way", "<14>INFO waits"}) || syslog.Lost() > 0 {
		t.Errorf("%q, %d lost", got, syslog.Lost())
	}
}

// TestSyslogLongLine: a line that is too long for a packet is dropped and counted, and delays no
// other line.
func TestSyslogLongLine(t *testing.T) {
	sink, at := listen(t, "udp", "127.0.0.1:0")
	_, syslog, _ := openSyslog(t, "udp://"+at)
	_, _ = io.WriteString(syslog, strings.Repeat("x", 70_000))
	_, _ = io.WriteString(syslog, "short\n")
	await.That(t, "the line after", func() bool { return slices.Contains(sink.got(), "<11>short") })
	if syslog.Lost() != 1 {
		t.Errorf("%d lost", syslog.Lost())
	}
}
