//go:build e2e

package storage

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/crypt"
	"saltern/supervisor/status"
	"saltern/test/lab"
	"saltern/test/minion"
)

// stranger signs a minion in at node i that its master does not know, and gives
// the error, in which the master's words are; nil: it has been let in. The key
// of the master must have been read before (masterKey): the volume may hang.
func (h *hosts) stranger(t *testing.T, i int, master *rsa.PublicKey) error {
	t.Helper()
	if h.key == nil {
		var err error
		if h.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}

	addr := fmt.Sprintf("%s.1%d", h.net, i)
	h.strangers++
	m, err := minion.New(minion.Config{
		ID:      fmt.Sprintf("stranger%d", h.strangers),
		Key:     h.key,
		Master:  master,
		Request: addr + ":4506",
		Publish: addr + ":4505",
	})
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan error, 1)
	go func() { // this thread is in the network of the machine, and ends with the function
		runtime.LockOSThread()
		fd, err := unix.Open(fmt.Sprintf("/run/netns/%s-%d", h.name, i), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			err = m.SignIn(ctx)
			m.Close()
		}

		done <- err
	}()

	return <-done
}

// masterKey gives the public key of the master of node i.
func (h *hosts) masterKey(t *testing.T, i int) *rsa.PublicKey {
	t.Helper()
	key, err := crypt.ParsePublic([]byte(h.on(t, i, "cat", "/srv/cluster/pki/master.pub")))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// told waits until the master of node i has logged a fault by its code, and
// tells a new minion so whose key it cannot store.
func (h *hosts) told(t *testing.T, i int, code status.Code, master *rsa.PublicKey) {
	t.Helper()
	h.logged(t, i, code)
	lab.Eventually(t, time.Minute, fmt.Sprintf("a new minion at node%d is told %s", i, code), func() error {
		err := h.stranger(t, i, master)
		if err == nil || errors.Is(err, minion.ErrWaiting) {
			return fmt.Errorf("its key was stored: %w", err)
		}
		if !strings.Contains(err.Error(), string(code)) {
			return err
		}
		t.Logf("a new minion at node%d: %v", i, err)
		return nil
	})
}

// logged waits until the master of node i has logged a fault by its code.
func (h *hosts) logged(t *testing.T, i int, code status.Code) {
	t.Helper()
	lab.Eventually(t, time.Minute, fmt.Sprintf("the master of node%d logs %s", i, code), func() error {
		_, err := h.run(10*time.Second, "exec", fmt.Sprint(i), "grep", "-q", "code="+string(code),
			"/data/saltern/log/master.log")
		return err
	})
}

// advised checks that salt-key on node i, whose volume stops, says from the
// first moment on where it is told why, and the status the code. Keys may still
// be listed. m2 is a minion whose key waits.
func (h *hosts) advised(t *testing.T, i int, code status.Code) {
	t.Helper()
	says := func(listed bool, args ...string) {
		t.Helper()
		lab.Eventually(t, 2*time.Minute, "salt-key says what to do", func() error {
			// Killed when it waits for a volume that hangs: it has spoken by then.
			out, err := h.run(2*time.Minute,
				append([]string{"exec", fmt.Sprint(i), "timeout", "-s", "KILL", "30",
					filepath.Join(h.bin, "salt-key"), "-c", "/data/saltern/etc/salt"},
					args...)...)

			t.Logf("node%d: salt-key %s: %v: %s", i, strings.Join(args, " "), err, out)
			if !strings.Contains(out, "applianced storage status") &&
				(!listed || err != nil || !strings.Contains(out, "m2")) {
				return fmt.Errorf("%v: %q", err, out)
			}

			return nil
		})
	}

	says(false, "-y", "-a", "m2")
	says(true, "-L")
	h.has(t, 2*time.Minute, i, code)
	h.logged(t, i, code)
	says(false, "-y", "-a", "m2")
	says(false, "-y", "-d", "m2")
	says(true, "-L")
}
