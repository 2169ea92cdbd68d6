package eauth

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/internal/loginurl"
	"saltern/master/internal/userfile"
	"saltern/master/value"
)

// BenchmarkLogin is a log-in by systems that need no directory; the figures in
// docs/performance.md are those of the processor.
func BenchmarkLogin(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "users")
	text := strings.Repeat("somebody:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n", 500) +
		"apr1:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\nbcrypt:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n"
	for name, text := range map[string]string{path: text, filepath.Join(dir, "mine.py"): module} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}

	file, err := userfile.New(value.NewMap("^filename", path, "^filetype", "htpasswd"))
	if err != nil {
		b.Fatal(err)
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `["test.*"]`) }))
	defer server.Close()
	address, err := loginurl.New(value.NewMap("^url", server.URL))
	if err != nil {
		b.Fatal(err)
	}

	run := func(name, user, password string, ask Backend, children func() time.Duration) {
		b.Run(name, func(b *testing.B) {
			if _, err := ask(b.Context(), user, password); err != nil {
				b.Fatal(err)
			}

			began := spent(b, syscall.RUSAGE_SELF) + children()
			for b.Loop() {
				if v, err := ask(b.Context(), user, password); !v.OK || err != nil {
					b.Fatal(v, err)
				}
			}

			b.ReportMetric(float64(spent(b, syscall.RUSAGE_SELF)+children()-began)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}

	none := func() time.Duration { return 0 }
	run("file-apr1", "apr1", "myPassword", File(file, nil), none)
	run("file-bcrypt", "bcrypt", "myPassword", File(file, nil), none)
	run("rest", "ann", "x", REST(address), none)
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		b.Log("NOT MEASURED: set SALTERN_PYTHON to a Python that has the Salt library")
		return
	}

	conf := filepath.Join(dir, "master")
	if err := os.WriteFile(conf,
		[]byte("root_dir: "+dir+"\nauth_dirs: ["+dir+"]\nexternal_auth: {mine: {ann: [test.ping]}}\n"),
		0o600); err != nil {
		b.Fatal(err)
	}

	p := NewPython([]string{python}, conf, "")
	defer p.Close()
	began := time.Now()
	if _, err := p.Login(b.Context(), "mine", "ann", "nna"); err != nil {
		b.Fatal(err)
	}

	b.Logf("the first log-in by Python took %s", time.Since(began))
	run("python", "ann", "nna", func(ctx context.Context, user, password string) (Verdict, error) {
		return p.Login(ctx, "mine", user, password)
	},
		func() time.Duration { // some have ended
			return spent(b, syscall.RUSAGE_CHILDREN) + ofProcess(b, p.idle[0].kept.PID())
		})
}

// spent is the time of the processor that this process, or its children that ended, took.
func spent(b *testing.B, who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ofProcess is the same of another one, in hundredths of a second.
func ofProcess(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndex(string(text), ")"):]))
	user, err1 := strconv.Atoi(fields[12])
	system, err2 := strconv.Atoi(fields[13])
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
