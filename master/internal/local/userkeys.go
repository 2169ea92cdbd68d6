// Package local answers commands of tools on this host. The tools publish jobs, call wheel and
// runner functions, and request tokens.
package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"saltern/internal/durable"
	"saltern/master/crypt"
)

// UserKeys reads the key files by which users of this host authenticate to the master, and creates
// missing ones: cachedir/.<user>_key, mode 0600, owned by the user (salt/daemons/masterapi.py
// access_keys and mk_key). If verify is set, it leaves out users that do not exist on the host.
func UserKeys(cachedir string, users []string, verify bool, log *slog.Logger) (map[string]string, error) {
	keys := map[string]string{}
	for _, name := range users {
		if name == "" || strings.ContainsAny(name, "/\\\x00*?[]()|^$+") {
			continue // a pattern in publisher_acl, or an invalid user name
		}

		path := filepath.Join(cachedir, "."+name+"_key")
		key, err := ReadUserKey(path)
		if errors.Is(err, fs.ErrNotExist) {
			key, err = makeUserKey(path, name, verify, log)
		}

		if err != nil {
			return nil, fmt.Errorf("prepare the key of user %s: %w", name, err)
		}

		if key != "" {
			keys[name] = key
		}
	}

	return keys, nil
}

// ReadUserKey returns the key in a user's key file.
func ReadUserKey(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 4096 {
		return "", fmt.Errorf("%s is not a key file; remove it and start again", path)
	}

	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}

	if _, err := crypt.ParseKey(strings.TrimSpace(string(b))); err != nil {
		return "", fmt.Errorf("%s holds no key (%w); remove it and start again", path, err)
	}

	return strings.TrimSpace(string(b)), nil
}

func makeUserKey(path, name string, verify bool, log *slog.Logger) (string, error) {
	u, err := user.Lookup(name)
	if err != nil && verify {
		log.Warn("user of publisher_acl is not known on this host", "user", name)
		return "", nil
	}

	k, err2 := crypt.NewKey(rand.Reader)
	if err2 != nil {
		return "", err2
	}

	if err := durable.Replace(path, []byte(k.String()), 0o600); err != nil {
		return "", err
	}

	if err == nil {
		if uid, err := strconv.Atoi(u.Uid); err == nil && uid != os.Getuid() {
			if err := os.Chown(path, uid, -1); err != nil {
				log.Warn("key file cannot be given to its user", "path", path, "user", name, "error", err)
			}
		}
	}

	return k.String(), nil
}

// CurrentUser returns the name of the user who runs this process.
func CurrentUser() string {
	u, err := user.Current()
	if err != nil {
		return "root"
	}
	return u.Username
}
