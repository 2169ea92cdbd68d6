package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"saltern/supervisor/layout"
)

// ReadSecret returns the cluster's secret of this node, or "" if there is none.
func ReadSecret(nodeDir string) (string, error) { return readSecret(nodeDir, SecretFile) }

// ReadNextSecret returns the secret that will replace the present one, or "" if no change is under
// way.
func ReadNextSecret(nodeDir string) (string, error) { return readSecret(nodeDir, NextSecretFile) }

func readSecret(nodeDir, name string) (string, error) {
	b, err := readBounded(filepath.Join(nodeDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// WriteSecret replaces the secret. When it returns, the new secret is on the disk.
func WriteSecret(nodeDir, secret string) error { return writeSecret(nodeDir, SecretFile, secret) }

// WriteNextSecret saves the secret that will replace the present one. If secret is empty, it
// removes the saved one.
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
