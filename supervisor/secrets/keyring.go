// Package secrets keeps the keys with which pillars are decrypted, in a gpg folder on the shared
// storage. Every node has a copy of the folder.
//
// Only the files that [Part] names are the keyring. The other files that gpg creates, such as its
// agent's sockets and locks, belong to the node where gpg runs. So the administrator's gpg never
// runs in the shared folder: it runs on a copy in memory, from which this package writes changes
// back.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/command"
)

// Dir is the path of the keyring, relative to the shared storage.
const Dir = "etc/gpgkeys"

// privateKeys is the folder of private keys, with one file for each key.
const privateKeys = "private-keys-v1.d"

// Part reports whether a path relative to Dir belongs to the keyring: public keys, private keys,
// and an administrator's settings for gpg. Sockets, locks and files that gpg can create again do
// not belong to it.
func Part(rel string) bool {
	dir, name := path.Split(rel)
	switch dir {
	case "":
		switch name {
		case "pubring.kbx", "pubring.gpg", privateKeys, "gpg.conf", "gpg-agent.conf", "common.conf":
			return true
		}
	case privateKeys + "/":
		return strings.HasSuffix(name, ".key") && !strings.HasPrefix(name, ".")
	}
	return false
}

// Bounds of a keyring and of gpg's input.
const (
	maxFile  = 8 << 20
	maxFiles = 4096
	// MaxSecret bounds a value to encrypt, in bytes.
	MaxSecret = 1 << 20
	// MaxKey bounds a file with keys, in bytes.
	MaxKey = 1 << 20
	// gpgTakes bounds one run of gpg.
	gpgTakes = 30 * time.Second
)

// ErrNoGPG means that gpg is not installed.
var ErrNoGPG = errors.New("there is no program gpg on this machine; install it: apt install gpg gpg-agent")

// Place says where the keyring is.
type Place struct {
	Shared string // folder of the keyring on the shared storage
	Node   string // the same folder as this node's master reads it
	Run    string // folder in memory for copies; empty: the system's folder for temporary files
	// UID and GID are the account of the master.
	UID, GID int
}

// home is a folder that gpg uses for one command.
type home struct{ dir string }

// openCopy copies the keyring into a new folder. It copies private keys only if private is set. The
// caller closes the copy.
func (p Place) openCopy(private bool) (*home, error) {
	if _, err := exec.LookPath("gpg"); err != nil {
		return nil, ErrNoGPG
	}

	base := p.Run
	if fi, err := os.Stat(base); err != nil || !fi.IsDir() {
		base = os.TempDir()
	}

	dir, err := os.MkdirTemp(base, homePrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for gpg: %w", err)
	}

	h := &home{dir}
	files, err := readKeyring(p.Shared, private)
	if err != nil {
		h.close()
		return nil, err
	}

	err = os.Mkdir(filepath.Join(dir, privateKeys), 0o700)
	for name, content := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
	}

	if err != nil {
		h.close()
		return nil, fmt.Errorf("make a folder for gpg: %w", err)
	}

	return h, nil
}

const homePrefix = "gpg-"

func (h *home) close() {
	ctx, cancel := context.WithTimeout(context.Background(), gpgTakes)
	defer cancel()
	if _, err := os.Lstat(filepath.Join(h.dir, "S.gpg-agent")); err == nil {
		_, _ = command.Exec{}.Run(ctx, []string{"gpgconf", "--homedir", h.dir, "--kill", "gpg-agent"})
	}
	_ = os.RemoveAll(h.dir)
}

// runGPG runs one gpg command without prompts. Secrets are in stdin, never in args.
func (h *home) runGPG(ctx context.Context, stdin string, args ...string) (command.Output, error) {
	argv := append([]string{"gpg", "--homedir", h.dir, "--no-options", "--batch", "--no-tty", "--quiet",
		"--no-auto-check-trustdb", "--trust-model", "always"},
		args...)
	return command.Exec{Stdin: stdin, Limit: gpgTakes}.Run(ctx, argv)
}

// readKeyring returns the content of the keyring's files, by name. A missing folder counts as
// empty. readKeyring follows no links, because the master's account may change the folder.
func readKeyring(dir string, private bool) (map[string][]byte, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keyring: %w", err)
	}
	defer root.Close()

	out := map[string][]byte{}
	for _, sub := range []string{".", privateKeys} {
		if sub == privateKeys && !private {
			continue
		}

		if fi, err := root.Lstat(sub); err != nil || !fi.IsDir() {
			continue
		}

		entries, err := fs.ReadDir(root.FS(), sub)
		if err != nil {
			return nil, fmt.Errorf("read the keyring: %w", err)
		}

		for _, e := range entries {
			name := path.Join(sub, e.Name())
			if !Part(name) || !e.Type().IsRegular() {
				continue
			}
			if len(out) >= maxFiles {
				return nil, fmt.Errorf("read the keyring: more than %d keys", maxFiles)
			}

			if out[name], err = readPart(root, name); err != nil {
				return nil, fmt.Errorf("read the keyring: %w", err)
			}
		}
	}

	return out, nil
}

func readPart(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d MiB", name, maxFile>>20)
	}
	return b, err
}

// hasPrivateKey reports whether a keyring has the private key with the keygrip grip.
func hasPrivateKey(dir, grip string) bool {
	fi, err := os.Lstat(filepath.Join(dir, privateKeys, grip+".key"))
	return err == nil && fi.Mode().IsRegular()
}
