package userfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/value"
)

// section names a file of users with this text.
func section(t testing.TB, text string, options ...any) *value.Map {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return value.NewMap(append([]any{"^filename", path, "ann", []any{"test.*"}}, options...)...)
}

func open(t testing.TB, text string, options ...any) *File {
	t.Helper()
	f, err := New(section(t, text, options...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// openssl is a password as openssl hashes it.
func openssl(t *testing.T, kind, password string) string {
	t.Helper()
	out, err := exec.Command("openssl", "passwd", kind, password).Output()
	if err != nil {
		t.Fatalf("openssl passwd %s: %v", kind, err)
	}
	return strings.TrimSpace(string(out))
}

func TestForms(t *testing.T) {
	lines := map[string]string{ // myPassword, in the forms of Apache's manual ("Password Formats")
		"bcrypt": "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC", "apr1": "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/",
		"sha": "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=", "plain": "myPassword",
		"apr1-too": openssl(t, "-apr1", "myPassword"), "md5": openssl(t, "-1", "myPassword"), "sha256": openssl(t, "-5", "myPassword"), "sha512": openssl(t, "-6", "myPassword"),
	}

	text := "# users\n\nno line of a user\n"
	for user, hash := range lines {
		text += user + ":" + hash + "\n"
	}

	f := open(t, text+"sha:{SHA}another\ndes:rqXexS6ZhobKA\nyes:$y$j9T$x$y\ncut:$apr1$\n", "^filetype", "htpasswd")
	for user := range lines {
		if ok, err := f.Login(user, "myPassword"); !ok || err != nil {
			t.Errorf("%s: %v, %v", user, ok, err)
		}

		for _, wrong := range []string{"mypassword", "", "myPassword ", lines[user] + "x"} {
			if ok, err := f.Login(user, wrong); ok || err != nil {
				t.Errorf("%s with %q: %v, %v", user, wrong, ok, err)
			}
		}
	}

	for _, user := range []string{"des", "yes"} {
		if ok, err := f.Login(user, "myPassword"); ok || !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v, %v", user, ok, err)
		}
	}

	if ok, err := f.Login("cut", "x"); ok || err == nil || strings.Contains(err.Error(), "apr1") {
		t.Errorf("a hash that is cut: %v, %v", ok, err)
	}
}

func TestFiles(t *testing.T) {
	const sums = "46|trey|16a0034f90b06bf3c5982ed8ac41aab4\n555|mike|b6e02a4d2cb2a6ef0669e79be6fd02e4\n"
	for name, tt := range map[string]struct {
		text    string
		options []any
		right   [][2]string
		wrong   [][2]string
	}{
		"text": {"dean:goneFishing\n\r\n gene:OceanMan \r\ngene:other\nempty:\n", nil,
			[][2]string{
				{"dean", "goneFishing"},
				{"gene", "OceanMan"},
				{"empty", ""},
			}, [][2]string{{"gene", "other"}, {"gene", ""}, {"dean", "goneFishing\n"}, {"eve", ""}, {"", ""}}},
		"md5": {sums,
			[]any{"^hashtype", "md5", "^username_field", int64(2), "^password_field", "3", "^field_separator", "|"},
			nil, [][2]string{{"trey", "16a0034f90b06bf3c5982ed8ac41aab4"}, {"46", "trey"}}},
		"sha256": {"ann:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", []any{"^hashtype", "sha256"},
			[][2]string{{"ann", "test"}}, [][2]string{{"ann", "test2"}}},
		"htdigest": {"ann:other:x\nann:private:" + digest("md5", "ann:private:right") + "\nbob:private:BAD\n",
			[]any{"^filetype", "htdigest", "^realm", "private"},
			[][2]string{{"ann", "right"}}, [][2]string{{"ann", "wrong"}, {"bob", "right"}, {"ann:private", "right"}}},
	} {
		f := open(t, tt.text, tt.options...)
		for want, pairs := range map[bool][][2]string{true: tt.right, false: tt.wrong} {
			for _, p := range pairs {
				if ok, err := f.Login(p[0], p[1]); ok != want || err != nil {
					t.Errorf("%s: %q: %v, %v", name, p, ok, err)
				}
			}
		}
	}

	if ok, err := open(t, "ann:a\nbob\neve:e\n").Login("eve", "e"); ok || err == nil {
		t.Errorf("a line without a password: %v, %v", ok, err)
	}

	f := open(t, "")
	if err := os.Remove(f.name); err != nil {
		t.Fatal(err)
	}

	if ok, err := f.Login("ann", ""); ok || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, %v", ok, err)
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		options []any
		want    string
	}{
		{[]any{"^filename", nil}, "^filename"}, {[]any{"^filetype", "csv"}, "^filetype"}, {[]any{"^filetype", "htdigest"}, "^realm"},
		{[]any{"^hashtype", "sha1"}, "^hashtype"}, {[]any{"^username_field", int64(0)}, "^username_field"}, {[]any{"^password_field", "two"}, "^password_field"},
		{[]any{"^field_separator", ""}, "^field_separator"},
	} {
		if _, err := New(section(t, "", tt.options...)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v", tt.options, err)
		}
	}
}

// TestAttack86Users: a name or a password that means something in a file of users is a name
// or a password, nothing else; no file keeps the master busy.
func TestAttack86Users(t *testing.T) {
	for _, kind := range []string{"text", "htpasswd"} {
		f := open(t, "ann:secret\n#bob:hidden\nempty:\n:nobody\n", "^filetype", kind)
		for _, p := range [][2]string{
			{"", "nobody"},
			{"ann:secret", ""},
			{"ann:secret\nann", "secret"},
			{"ann", "secret\n#bob"},
			{"#bob", "hidden"},
			{"\nann", "secret"},
			{"ann\x00", "secret"},
		} {
			if ok, _ := f.Login(p[0], p[1]); ok && (kind != "text" || p[0] != "#bob") {
				t.Errorf("%s: %q is let in", kind, p)
			}
		}
	}

	long := strings.Repeat("x", maxPassword+1)
	if ok, err := open(t, "ann:"+long, "^filetype", "htpasswd").Login("ann", long); ok || err != nil {
		t.Errorf("a password of %d bytes: %v, %v", len(long), ok, err)
	}

	f := open(t, "")
	if err := os.Truncate(f.name, maxUserFile+1); err != nil {
		t.Fatal(err)
	}

	if ok, err := f.Login("ann", ""); ok || err == nil {
		t.Errorf("a file without end: %v, %v", ok, err)
	}
}

func FuzzUsers(f *testing.F) {
	f.Add("ann:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\n", "ann", "x")
	f.Add("46|trey|16a0034f90b06bf3c5982ed8ac41aab4", "trey", "x")
	f.Add("ann:r:9f86d081884c7d659a2feaa0c55ad015\n", "ann", "x")
	f.Fuzz(func(t *testing.T, text, user, password string) {
		if strings.Contains(text, "rounds=") || strings.Contains(text, "$2") {
			t.Skip("the administrator chose how long it takes")
		}

		for _, kind := range []string{"text", "htpasswd", "htdigest"} {
			u := &File{kind: kind, hash: "plaintext", separator: ":", realm: "r", password: 1}
			if ok, err := u.proves(text, user, password); ok && (err != nil || !strings.Contains(text, user)) {
				t.Errorf("%s: %q is let in: %v", kind, user, err)
			}
		}
	})
}
