// Package sums writes the digests of a release's files into SHA256SUMS, in the format of sha256sum.
// It signs that file with an ed25519 key, like those that sign upgrades. The signature is in
// SHA256SUMS.sig: 64 bytes, which openssl verifies.
package sums

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// The names of the files that Write creates.
const (
	Name      = "SHA256SUMS"
	Signature = Name + ".sig"
)

// plain matches names that sha256sum writes and reads without escapes.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]*$`)

// Write writes the digests of all files in a folder, and signs the digests unless key is nil. It
// replaces earlier digests and their signature.
func Write(dir string, key ed25519.PrivateKey) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sums: %w", err)
	}

	var out bytes.Buffer
	for _, f := range files { // the list has the order of the names
		switch {
		case f.Name() == Name || f.Name() == Signature:
			continue
		case !f.Type().IsRegular() || !plain.MatchString(f.Name()):
			return fmt.Errorf("sums: %q in %s is no file of a release", f.Name(), dir)
		}

		sum, err := sumOf(filepath.Join(dir, f.Name()))
		if err != nil {
			return fmt.Errorf("sums: %w", err)
		}

		fmt.Fprintf(&out, "%x  %s\n", sum, f.Name())
	}

	if out.Len() == 0 {
		return errors.New("sums: there are no files in " + dir)
	}

	if err := os.Remove(filepath.Join(dir, Signature)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("sums: %w", err)
	}

	if err := os.WriteFile(filepath.Join(dir, Name), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	if key == nil {
		return nil
	}

	if err := os.WriteFile(filepath.Join(dir, Signature), ed25519.Sign(key, out.Bytes()), 0o644); err != nil {
		return fmt.Errorf("sums: %w", err)
	}

	return nil
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
