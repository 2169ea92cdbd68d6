package gpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"saltern/internal/command"
	"saltern/internal/printable"
	"saltern/master/value"
)

// Failure means that gpg gave nothing for a message. Its text is the one of Salt's renderer, with the
// message and all that gpg said of it. Reason is short, and for logs.
type Failure struct {
	Reason string
	text   string
	final  bool // gpg has said why, so another run would say the same
}

// Error returns Salt's text.
func (f *Failure) Error() string { return f.text }

// Available returns ErrUnavailable if there is no program gpg.
func (d *Decrypter) Available() error {
	if d.lookUp("gpg") == "" {
		return ErrUnavailable
	}
	return nil
}

// lookUp returns the path of a program, or "" if there is none.
func (d *Decrypter) lookUp(name string) string {
	if d.cfg.Path == "" {
		path, _ := exec.LookPath(name)
		return path
	}
	for _, dir := range filepath.SplitList(d.cfg.Path) {
		path := filepath.Join(dir, name)
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// env returns the environment of gpg: that of the master, as beneath Salt's renderer. Beside a Path
// it is small.
func (d *Decrypter) env() []string {
	if d.cfg.Path == "" {
		return command.PythonEnviron()
	}
	return []string{"PATH=" + d.cfg.Path, "HOME=" + os.Getenv("HOME")}
}

// run runs gpg with the arguments of Salt's renderer (salt/renderers/gpg.py _decrypt_ciphertext). As
// there, any output is the secret, whatever gpg's exit status is.
func (d *Decrypter) run(ctx context.Context, message string) (string, error) {
	program := d.lookUp("gpg")
	if program == "" {
		return "", ErrUnavailable
	}

	gpg := command.Exec{
		Path:       program,
		Limit:      d.cfg.Takes,
		MaxOutput:  MaxSecret,
		EndsWithUs: true,
		Env:        d.env(),
		Add:        []string{"LC_ALL=C.UTF-8"}, // gpg names the users of keys in its messages
		Stdin:      message,
	}
	d.mu.Lock()
	d.stats.Runs++
	d.mu.Unlock()
	argv := []string{"gpg", "--homedir", d.cfg.Keydir, "--status-fd", "2", "--no-tty", "-d"}
	out, err := gpg.Run(ctx, argv)

	switch {
	case errors.Is(err, command.ErrOutput):
		return "", d.failure(message, "gpg: the secret has more than "+strconv.Itoa(MaxSecret)+" bytes\n[GNUPG:] NODATA\n")
	case ctx.Err() != nil:
		return "", errClosed
	case errors.Is(err, command.ErrTimeout):
		return "", errHangs
	case err != nil && out.Exit == 0:
		return "", errors.Join(errStart, err)
	case out.Exit < 0:
		return "", errStopped
	case len(out.Stdout) == 0:
		return "", d.failure(message, string(out.Stderr))
	}
	return string(out.Stdout), nil
}

// failure returns the Failure of a message, of which gpg has said words.
func (d *Decrypter) failure(message, words string) *Failure {
	return &Failure{
		Reason: d.reason(words),
		text: "Could not decrypt cipher " + value.Repr([]byte(message)) +
			", received: " + value.Repr([]byte(words)),
		final: isFinal(words),
	}
}

// isFinal reports whether gpg has said what is wrong with a message. That it has no secret key it also says
// when its agent has just ended.
func isFinal(words string) bool {
	return strings.Contains(words, "[GNUPG:] NODATA") ||
		strings.Contains(words, "[GNUPG:] NO_SECKEY ") && !strings.Contains(words, " agent")
}

const (
	maxReason = 300
	// maxKeydir is the longest path of a folder in which gpg's agent can make its sockets, in bytes, unless
	// it makes them in /run/user: with S.gpg-agent.browser it fills the path of a socket.
	maxKeydir = 86
)

// reason returns the last words of gpg, and what is known beyond them.
func (d *Decrypter) reason(words string) string {
	reason := "gpg gives nothing"
	var keys []string
	for line := range strings.Lines(words) {
		if text, ok := strings.CutPrefix(line, "gpg: "); ok {
			reason = strings.TrimSpace(text)
		}
		if key, ok := strings.CutPrefix(line, "[GNUPG:] NO_SECKEY "); ok && len(keys) < 4 {
			keys = append(keys, strings.TrimSpace(key))
		}
	}

	if len(keys) > 0 {
		reason += " (made for key " + strings.Join(keys, ", ") + ")"
	}
	if strings.Contains(words, "agent") && len(d.cfg.Keydir) > maxKeydir {
		reason += fmt.Sprintf("; the path of gpg_keydir may have at most %d bytes, because gpg's agent has its sockets there", maxKeydir)
	}
	return printable.Brief(reason, maxReason)
}

// lockOfProcess matches the names of the files that gpg makes for a lock, see dotlock.c of GnuPG.
var lockOfProcess = regexp.MustCompile(`^\.#lk[0-9a-fA-Fx]+\.(.+)\.(\d{1,9})$`)

// removeStaleLocks removes the lock files of processes of this machine that have ended. A gpg that is
// killed leaves them (salt/renderers/gpg.py _cleanup_stale_lockfiles).
func removeStaleLocks(keydir string) {
	host, err := os.Hostname()
	if err != nil {
		return
	}
	entries, err := os.ReadDir(keydir)
	if err != nil {
		return // gpg will say what is wrong with the folder
	}

	for _, e := range entries {
		m := lockOfProcess.FindStringSubmatch(e.Name())
		if m == nil || m[1] != host {
			continue
		}
		pid, err := strconv.Atoi(m[2])
		if err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(filepath.Join(keydir, e.Name())) // gpg works beside it, too
		}
	}
}
