package backupplan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"saltern/supervisor/backup"
	"saltern/supervisor/settings"
)

// keyFile writes a file with credentials.
func keyFile(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const someKeys = "# for backups\n[other]\naws_access_key_id=no\n[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key=se=cr/et\n"

func TestReadKeys(t *testing.T) {
	id, secret, err := readKeys(keyFile(t, 0o600, someKeys))
	if err != nil || id != "AKIAEXAMPLE" || secret != "se=cr/et" {
		t.Errorf("%q %q %v", id, secret, err)
	}

	for _, c := range []struct {
		mode       os.FileMode
		text, want string
	}{
		{0o640, someKeys, "chmod 600"},
		{0o600, "[default]\naws_access_key_id = A\n", "lacks"},
		{0o600, "[other]\naws_access_key_id = A\naws_secret_access_key = b\n", "lacks"},
		{0o600, strings.Repeat("x", 1<<20) + someKeys, "lacks"},
	} {
		if _, _, err := readKeys(keyFile(t, c.mode, c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}

	if _, _, err := readKeys("/nonexistent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A service that answers what it likes is refused, within bounds.
func TestHostileService(t *testing.T) {
	answer := func(http.ResponseWriter, *http.Request) {}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer srv.Close()

	in, err := newPlace(settings.Backup{
		To: "s3://salt-backups/prod",
		S3: settings.S3{Endpoint: srv.URL, Credentials: keyFile(t, 0o600, someKeys)},
	})
	if err != nil {
		t.Fatal(err)
	}

	f := newFolder(in, "prod", "1234567890")
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"no bucket": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			"there is no bucket salt-backups"},
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
			"look for the bucket"},
		"endless list": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.Copy(w, io.LimitReader(zeros{}, 64<<20))
			}
		}, "larger than"},
		"no list": {func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("<xml/>")) },
			"is not a list of backups"},
	} {
		answer = c.answer
		if _, _, err := f.catalogue(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// metadata is EC2's metadata service of a machine whose role has a key, good for some time;
// asked counts how often it was asked for it.
func metadata(t *testing.T, id string, good time.Duration, asked *atomic.Int32) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/latest/") {
		case "PUT api/token":
			_, _ = io.WriteString(w, "secret")
		case "GET meta-data/iam/security-credentials/":
			_, _ = io.WriteString(w, "backups")
		case "GET meta-data/iam/security-credentials/backups":
			asked.Add(1)
			fmt.Fprintf(w,
				`{"AccessKeyId": %q, "SecretAccessKey": "s", "Token": "of the session", "Expiration": %q}`,
				id, time.Now().Add(good).UTC().Format(time.RFC3339))
		default:
			http.NotFound(w, r)
		}
	}))

	t.Cleanup(srv.Close)
	return srv.URL
}

// With role the keys are those of the machine's role: asked for once while they are good,
// sent with their token, and asked for anew before they end. The metadata service is asked
// by nobody else.
func TestRole(t *testing.T) {
	var asked atomic.Int32
	var mu sync.Mutex
	var sent []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, after, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		id, _, _ := strings.Cut(after, "/")
		sent = append(sent, id+" "+r.Header.Get("X-Amz-Security-Token"))
	}))
	defer srv.Close()

	look := func(s settings.S3, good time.Duration) {
		t.Helper()
		s.Endpoint = srv.URL
		in, err := newBucket(settings.Backup{S3: s}, "salt-backups", "", metadata(t, "ASIAROLE", good, &asked))
		if err != nil {
			t.Fatal(err)
		}

		for range 3 {
			if err := in.checkPresent(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}

	for _, c := range []struct {
		s     settings.S3
		good  time.Duration
		asked int32
		sent  string
	}{
		{settings.S3{Role: true}, time.Hour, 1, "ASIAROLE of the session"},
		{settings.S3{Role: true}, keysAnew - time.Second, 3, "ASIAROLE of the session"},
		{settings.S3{Credentials: keyFile(t, 0o600, someKeys)}, time.Hour, 0, "AKIAEXAMPLE "},
	} {
		asked.Store(0)
		sent = nil
		look(c.s, c.good)
		if asked.Load() != c.asked || !slices.Equal(sent, []string{c.sent, c.sent, c.sent}) {
			t.Errorf("%+v: asked %d times, sent %q", c.s, asked.Load(), sent)
		}
	}

	nobody := httptest.NewServer(http.NotFoundHandler())
	defer nobody.Close()
	in, err := newBucket(settings.Backup{S3: settings.S3{Role: true, Endpoint: srv.URL}}, "salt-backups", "",
		nobody.URL)
	if err == nil {
		err = in.checkPresent(t.Context())
	}

	if err == nil || !strings.Contains(err.Error(),
		"ask for the machine's role: the metadata service gives no token (404)") {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestBucket makes backups at a real S3 service, whose address is in SALTERN_S3.
func TestBucket(t *testing.T) {
	endpoint := os.Getenv("SALTERN_S3")
	if endpoint == "" {
		t.Skip("SALTERN_S3 is not the address of an S3 service that takes any keys: make test-s3")
	}

	ctx := t.Context()
	conf := settings.Backup{
		To: "s3://salt-backups/prod",
		S3: settings.S3{Endpoint: endpoint, Credentials: keyFile(t, 0o600, someKeys)},
	}

	in, err := newPlace(conf)
	if err != nil {
		t.Fatal(err)
	}

	b := in.(*bucket)
	s := newSite(t)
	at := func(node string) *maker {
		m := s.maker(node)
		conf.Every = "24h"
		conf.Keep = 2
		conf.Recipients = m.Settings.Backup.Recipients
		m.Settings.Backup = conf
		return m
	}

	if o := at("n1").makeBackup(ctx); o.Kind != Failed || !strings.Contains(o.Text, "there is no bucket salt-backups") {
		t.Fatalf("%+v", o)
	}

	byRole, err := newBucket(settings.Backup{S3: settings.S3{Endpoint: endpoint, Role: true}},
		"salt-backups", "prod", metadata(t, "ASIAROLE", time.Hour, new(atomic.Int32)))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := b.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &b.name}); err != nil {
		t.Fatal(err)
	}

	if err := byRole.replace(ctx, "notes.txt", []byte("mine")); err != nil {
		t.Fatal(err)
	}

	if got, err := in.readFile(ctx, "notes.txt", 100); err != nil || string(got) != "mine" {
		t.Errorf("%q %v", got, err)
	}

	names := func() (out []string) {
		list, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name})
		if err != nil {
			t.Fatal(err)
		}

		for _, o := range list.Contents {
			out = append(out, strings.TrimPrefix(*o.Key, "prod/"))
		}

		return out
	}

	var made []string
	for i, node := range []string{"n1", "n2", "n1"} {
		s.clock = noon.Add(time.Duration(i+2) * 25 * time.Hour)
		if o := at(node).makeBackup(ctx); o.Kind != Made || o.Text != "" {
			t.Fatalf("%+v", o)
		}

		last := s.record(t).Last
		made = append(made, last.Name)
		if last.To != "s3://salt-backups/prod" {
			t.Errorf("%+v", last)
		}
	}

	signer, err := backup.Signer(at("n1").Settings)
	if err != nil {
		t.Fatal(err)
	}

	f := newFolder(in, "prod", signer)
	want := []string{"notes.txt", made[1], made[2], f.cataloguePath()}
	slices.Sort(want)
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	// What is there is the backup.
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: aws.String("prod/" + made[2])})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()

	if sum, _, err := backup.Inspect(ctx, out.Body, backup.Limits{}, s.identity); err != nil || sum.Signer != signer {
		t.Errorf("%+v %v", sum, err)
	}

	uploads := func() int {
		list, err := b.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &b.name})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Uploads)
	}

	// A large one is sent in parts; who stops in the middle leaves nothing that stays.
	u, err := f.create(ctx, f.prefix+"-large.age", "")
	if err == nil {
		_, err = io.CopyN(u, zeros{}, partSize+5)
	}

	if err != nil || uploads() != 1 {
		t.Fatalf("%v, %d uploads", err, uploads())
	}

	if err := errors.Join(u.finish(), u.publish()); err != nil {
		t.Fatal(err)
	}

	u.abandon()
	head, err := b.client.HeadObject(ctx,
		&s3.HeadObjectInput{Bucket: &b.name, Key: f.place.(*bucket).objectKey(f.prefix + "-large.age")})
	if err != nil || *head.ContentLength != partSize+5 {
		t.Errorf("%+v %v", head, err)
	}

	if _, err := f.create(ctx, f.prefix+"-dead.age", ""); err != nil {
		t.Fatal(err)
	}

	gone, cancel := context.WithCancel(ctx)
	u, err = f.create(gone, f.prefix+"-given-up.age", "")
	if err != nil {
		t.Fatal(err)
	}

	cancel()
	u.abandon()
	if uploads() != 1 {
		t.Errorf("%d uploads are left", uploads())
	}

	s.clock = s.clock.Add(25 * time.Hour)
	if o := at("n2").makeBackup(ctx); o.Kind != Made || uploads() != 0 {
		t.Errorf("%+v, %d uploads are left", o, uploads())
	}

	// The list is gone: another bucket?
	s.clock = s.clock.Add(25 * time.Hour)
	if err := in.remove(ctx, f.cataloguePath()); err != nil {
		t.Fatal(err)
	}

	if o := at("n2").makeBackup(ctx); o.Kind != Failed ||
		!strings.Contains(o.Text, "aws s3 cp /dev/null s3://salt-backups/prod/"+f.cataloguePath()) {
		t.Errorf("%+v", o)
	}

	conf.To = "s3://other-bucket"
	if o := at("n2").makeBackup(ctx); o.Kind != Failed && o.Kind != Early {
		t.Errorf("%+v", o)
	}
}
