package upgrade

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/image/bundle"
)

// Install writes a bundle into the slot that does not run, and selects that slot for a trial at the
// next boot. It locks the slots first. The selection is the last step. If an earlier step fails, the
// running version stays selected, so a half-written slot is never booted. Install calls tell with
// texts about its progress.
func (s *System) Install(
	ctx context.Context,
	r io.Reader,
	keys []ed25519.PublicKey,
	tell func(string),
) (bundle.Manifest, error) {
	st, unlock, err := s.lockedStatus()
	if err != nil {
		return bundle.Manifest{}, err
	}
	defer unlock()

	if st.Trying || st.Good != st.Running {
		return bundle.Manifest{}, errors.New("upgrade: the running version is not known to be good yet; wait until it is (applianced upgrade status)")
	}

	b, err := bundle.Open(r, keys)
	if err != nil {
		return bundle.Manifest{}, err
	}

	m := b.Manifest
	if st.Flavour != "" && m.Flavour != st.Flavour {
		return m, fmt.Errorf("upgrade: this is the version for %s kernels; take the one for %s, which this machine has",
			m.Flavour, st.Flavour)
	}

	if err := st.mayFollow(&m); err != nil && !s.Older {
		return m, err
	}

	slot := Other(st.Running)
	if err := s.onOneDisk(st.Running, slot); err != nil {
		return m, err
	}

	dir := filepath.Join(s.esp(), slot)
	if err := s.change(map[string]string{"next": "", "tries": ""}); err != nil {
		return m, err
	}

	if err := errors.Join(remove(filepath.Join(dir, "version")), remove(filepath.Join(dir, "created")),
		remove(filepath.Join(dir, "initrd")), remove(s.trial(slot))); err != nil {
		return m, err
	}

	for {
		p, part, err := b.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, err
		}

		tell(fmt.Sprintf("writing %s, %d MB, to slot %s", p.Name, p.Size/1e6, slot))
		to := filepath.Join(dir, p.Name)
		flags := os.O_CREATE | os.O_TRUNC | os.O_RDWR
		if p.Name == "root.squashfs" {
			to, flags = s.device(slot), os.O_RDWR
		}

		if err := write(ctx, to, flags, part); err != nil {
			return m, fmt.Errorf("upgrade: %s: %w", p.Name, err)
		}

		if err := same(ctx, to, p); err != nil {
			return m, err
		}
	}

	// The version file comes last: a slot that has it is complete.
	for _, f := range []struct{ name, text string }{
		{"created", m.Created.UTC().Format(time.RFC3339Nano)},
		{"version", m.Version},
	} {
		if err := write(ctx, filepath.Join(dir, f.name), os.O_CREATE|os.O_TRUNC|os.O_RDWR,
			strings.NewReader(f.text+"\n")); err != nil {
			return m, fmt.Errorf("upgrade: %w", err)
		}
	}

	return m, s.Try(slot)
}

func write(ctx context.Context, path string, flags int, r io.Reader) error {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, &untilDone{ctx, r}, make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close())
}

// same reads a written part of the bundle back, and returns an error if the part differs from p. It
// bypasses the page cache if the kernel permits that.
func same(ctx context.Context, path string, p bundle.Part) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	defer f.Close()

	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // only advice: a refusal changes nothing
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(&untilDone{ctx, f}, p.Size)); err != nil {
		return fmt.Errorf("upgrade: read %s back: %w", p.Name, err)
	}
	if hex.EncodeToString(h.Sum(nil)) != p.SHA256 {
		return fmt.Errorf("upgrade: %s reads back other than it was written: the disk is failing", p.Name)
	}

	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("upgrade: %w", err)
	}
	return nil
}

// untilDone is a reader that fails when its context has ended.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}
