package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"saltern/supervisor/layout"
)

// ReadSecret gives the cluster's secret of this node; empty when there is none.
func ReadSecret(nodeDir string) (string, error) { return readSecret(nodeDir, SecretFile) }

// ReadNextSecret gives the secret that is to take its place; empty when the
// secret is not being changed.
func ReadNextSecret(nodeDir string) (string, error) { return readSecret(nodeDir, NextSecretFile) }

func readSecret(nodeDir, name string) (string, error) {
	b, err := readBounded(filepath.Join(nodeDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// WriteSecret replaces the secret. It is on the disk when it returns.
func WriteSecret(nodeDir, secret string) error { return writeSecret(nodeDir, SecretFile, secret) }

// WriteNextSecret keeps the secret that is to follow; an empty one removes it.
func WriteNextSecret(nodeDir, secret string) error {
	if secret != "" {
		return writeSecret(nodeDir, NextSecretFile, secret)
	}
	if err := os.Remove(filepath.Join(nodeDir, NextSecretFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeSecret(nodeDir, name, secret string) error {
	if why := secretFault(secret); why != "" {
		return errors.New("secret: " + why)
	}
	_, err := layout.WriteFile(filepath.Join(nodeDir, name), []byte(secret), 0o600)
	return err
}
