// Package userfile checks log-ins against a file of users. Either each line of the file contains a
// name and a password, plain or hashed, or the file was written by Apache's htpasswd or htdigest.
//
// Source: salt/auth/file.py.
package userfile

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/tg123/go-htpasswd"

	"saltern/master/value"
)

// Bounds of a file of users and of a password, in bytes. The password is bounded because hashing a
// long one takes long.
const (
	maxUserFile = 16 << 20
	maxPassword = 4 << 10
)

// File is a file of users, and its format. It may be used concurrently.
type File struct {
	name, kind, hash, separator, realm string
	user, password                     int // indexes of the two fields, from 0
}

// ErrUnknown means that the user's password in the file has a form that this package does not
// support. Salt's own module may support it.
var ErrUnknown = errors.New("a form of password that is not known")

// Login reports whether password is the user's password. It reads the file at each call.
func (f *File) Login(user, password string) (bool, error) {
	text, err := f.readText()
	if err != nil {
		return false, err
	}
	return f.proves(text, user, password)
}

// New returns the File that a section of external_auth describes by its options that begin with ^.
// It returns an error if nobody could log in with these options.
func New(section *value.Map) (*File, error) {
	text := func(name, otherwise string) string {
		if v, ok := section.Get(name); ok && v != nil {
			return value.Str(v)
		}
		return otherwise
	}

	f := &File{
		name:      text("^filename", ""),
		kind:      text("^filetype", "text"),
		hash:      text("^hashtype", "plaintext"),
		separator: text("^field_separator", ":"),
		realm:     text("^realm", ""),
	}

	numbers := []struct {
		name, otherwise string
		to              *int
	}{{"^username_field", "1", &f.user}, {"^password_field", "2", &f.password}}

	for _, n := range numbers {
		at, err := strconv.Atoi(text(n.name, n.otherwise))
		if err != nil || at < 1 {
			return nil, fmt.Errorf("file: %s must be the number of a field, from 1", n.name)
		}
		*n.to = at - 1
	}

	switch {
	case f.name == "":
		return nil, errors.New("file: name the file of users in ^filename")
	case f.kind != "text" && f.kind != "htpasswd" && f.kind != "htdigest":
		return nil, fmt.Errorf("file: ^filetype must be text, htpasswd or htdigest, not %.40q", f.kind)
	case f.kind == "htdigest" && f.realm == "":
		return nil, errors.New("file: ^filetype htdigest needs ^realm")
	case f.separator == "":
		return nil, errors.New("file: ^field_separator must not be empty")
	case f.hash != "plaintext" && digest(f.hash, "") == "":
		return nil, fmt.Errorf("file: ^hashtype must be plaintext, md5, sha256 or sha512, not %.40q", f.hash)
	}

	return f, nil
}

func (f *File) readText() (string, error) {
	file, err := os.Open(f.name)
	if err != nil {
		return "", fmt.Errorf("open the file of users: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxUserFile+1))
	if err == nil && len(b) > maxUserFile {
		err = fmt.Errorf("it has more than %d bytes", maxUserFile)
	}
	if err != nil {
		return "", fmt.Errorf("read the file of users %s: %w", f.name, err)
	}
	return string(b), nil
}

// proves reports whether the first entry of user in text has this password.
func (f *File) proves(text, user, password string) (bool, error) {
	if user == "" || len(password) > maxPassword {
		return false, nil
	}

	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}

		switch {
		case f.kind == "text":
			fields := strings.Split(line, f.separator)
			if max(f.user, f.password) >= len(fields) {
				return false, fmt.Errorf("a line of %s has no field %d", f.name, 1+max(f.user, f.password))
			}
			if fields[f.user] == user {
				return equalText(fields[f.password], digest(f.hash, password)), nil
			}
		case strings.HasPrefix(line, "#"):
		case f.kind == "htdigest":
			if fields := strings.SplitN(line, ":", 3); len(fields) == 3 && fields[0] == user && fields[1] == f.realm {
				return equalText(strings.ToLower(fields[2]), digest("md5", user+":"+f.realm+":"+password)), nil
			}
		default:
			if name, hash, ok := strings.Cut(line, ":"); ok && name == user {
				return matches(hash, password)
			}
		}
	}

	return false, nil
}

func equalText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// digest returns the hash of a password in the form that a file of users contains
// (salt/modules/hashutil.py digest). If the kind of hash is unknown, it returns "".
func digest(kind, password string) string {
	switch b := []byte(password); kind {
	case "plaintext":
		return password
	case "md5":
		return fmt.Sprintf("%x", md5.Sum(b))
	case "sha256":
		return fmt.Sprintf("%x", sha256.Sum256(b))
	case "sha512":
		return fmt.Sprintf("%x", sha512.Sum512(b))
	}
	return ""
}

// classic matches hashes that crypt(3) made with DES, and other texts that are unlikely to be plain
// passwords.
var classic = regexp.MustCompile(`^[./0-9A-Za-z]{13}$|^[${]`)

// matches reports whether hash is a hash of password. hash must have one of Apache's forms.
func matches(hash, password string) (bool, error) {
	for _, form := range []htpasswd.PasswdParser{htpasswd.AcceptMd5, htpasswd.AcceptBcrypt,
		htpasswd.AcceptSha, htpasswd.AcceptSsha, htpasswd.AcceptCryptSha} {
		known, err := form(hash)
		if err != nil {
			// Leave out err, because it contains the hash.
			return false, errors.New("the user's password in the file is malformed")
		}
		if known != nil {
			return known.MatchesPassword(password), nil
		}
	}

	if classic.MatchString(hash) {
		return false, ErrUnknown
	}

	return equalText(hash, password), nil
}
