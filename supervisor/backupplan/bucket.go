package backupplan

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/supervisor/internal/imds"
	"saltern/supervisor/settings"
)

const (
	// partSize is how many bytes of an upload are kept in memory. A service accepts 10,000 parts:
	// that allows 160 GiB, more than a backup may have.
	partSize  = 16 << 20
	maxKeys   = 16 << 10 // bytes of the file with credentials
	maxCA     = 1 << 20
	maxSwept  = 1000 // abandoned uploads that are aborted at a time
	s3Region  = "us-east-1"
	keysAnew  = 5 * time.Minute // new keys of a role are fetched this long before the present ones expire
	keyLine   = "aws_access_key_id"
	keySecret = "aws_secret_access_key"
)

// bucket is a bucket of an S3 service, or the part of it below a prefix.
type bucket struct {
	client *s3.Client
	name   string
	prefix string // empty, or ends with a slash
}

// newBucket returns a bucket. metadata is the address of EC2's metadata service.
func newBucket(b settings.Backup, name, prefix, metadata string) (place, error) {
	keys, err := keysOf(b.S3, metadata)
	if err != nil {
		return nil, err
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	if b.S3.CA != "" {
		pem, err := durable.Read(b.S3.CA, maxCA)
		if err != nil {
			return nil, fmt.Errorf("read backup.s3.ca: %w", err)
		}

		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("there is no certificate in %s", b.S3.CA)
		}

		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}

	o := s3.Options{
		Region:      b.S3.Region,
		HTTPClient:  &http.Client{Transport: transport},
		Credentials: aws.NewCredentialsCache(keys, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = keysAnew }),
		// Services other than AWS do not support the newer digests. TLS and the backup's own digest
		// protect the data.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}
	if o.Region == "" {
		o.Region = s3Region
	}

	if b.S3.Endpoint != "" {
		o.BaseEndpoint, o.UsePathStyle = aws.String(b.S3.Endpoint), true
	}

	if prefix != "" {
		prefix += "/"
	}

	return &bucket{s3.New(o), name, prefix}, nil
}

// keysOf returns the source of the keys for a service. Keys of a role expire after some hours; the
// source fetches new keys before that.
func keysOf(s settings.S3, metadata string) (aws.CredentialsProviderFunc, error) {
	if s.Role {
		return func(ctx context.Context) (aws.Credentials, error) {
			k, err := imds.RoleKeys(ctx, metadata)
			return aws.Credentials{
				AccessKeyID:     k.AccessKeyID,
				SecretAccessKey: k.SecretAccessKey,
				SessionToken:    k.Token,
				CanExpire:       true,
				Expires:         k.Expiration,
			}, err
		}, nil
	}

	id, secret, err := readKeys(s.Credentials)
	if err != nil {
		return nil, err
	}

	return func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, nil
	}, nil
}

// readKeys reads the access key ID and the secret key in the section [default] of a file in the
// format of AWS's tools.
func readKeys(path string) (id, secret string, err error) {
	f, fi, err := durable.Open(path, durable.Follow)
	if err != nil {
		return "", "", fmt.Errorf("read backup.s3.credentials: %w", err)
	}
	defer f.Close()

	if fi.Mode().Perm()&0o077 != 0 {
		return "", "", fmt.Errorf("others may read %s: chmod 600 %s", path, path)
	}

	text, err := io.ReadAll(io.LimitReader(f, maxKeys))
	if err != nil {
		return "", "", fmt.Errorf("read backup.s3.credentials: %w", err)
	}

	section := "default"
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
		}

		key, v, ok := strings.Cut(line, "=")
		if !ok || section != "default" {
			continue
		}

		switch strings.TrimSpace(key) {
		case keyLine:
			id = strings.TrimSpace(v)
		case keySecret:
			secret = strings.TrimSpace(v)
		}
	}

	if id == "" || secret == "" {
		return "", "", fmt.Errorf("%s lacks %s or %s", path, keyLine, keySecret)
	}

	return id, secret, nil
}

func (b *bucket) String() string            { return strings.TrimSuffix("s3://"+b.name+"/"+b.prefix, "/") }
func (b *bucket) pathOf(name string) string { return "s3://" + b.name + "/" + b.prefix + name }
func (b *bucket) renewalCommand(name string) string {
	return "put an empty object there (aws s3 cp /dev/null " + b.pathOf(name) + ")"
}
func (b *bucket) objectKey(name string) *string { return aws.String(b.prefix + name) }

// missing returns fs.ErrNotExist if err means that there is no such object, else err.
func missing(err error) error {
	var key *types.NoSuchKey
	var not *types.NotFound
	if errors.As(err, &key) || errors.As(err, &not) {
		return fs.ErrNotExist
	}
	return err
}

func (b *bucket) checkPresent(ctx context.Context) error {
	_, err := b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.name})
	if err = missing(err); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no bucket %s: make it", b.name)
	}
	if err != nil {
		return fmt.Errorf("look for the bucket %s: %w", b.name, err)
	}
	return nil
}

func (b *bucket) readFile(ctx context.Context, name string, maxBytes int64) ([]byte, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: b.objectKey(name)})
	if err != nil {
		return nil, missing(err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(io.LimitReader(out.Body, maxBytes+1))
	if err == nil && int64(len(text)) > maxBytes {
		err = fmt.Errorf("%s is larger than %d bytes: %w", b.pathOf(name), maxBytes, unix.EFBIG)
	}
	return text, err
}

func (b *bucket) replace(ctx context.Context, name string, text []byte) error {
	_, err := b.client.PutObject(ctx,
		&s3.PutObjectInput{Bucket: &b.name, Key: b.objectKey(name), Body: bytes.NewReader(text)})
	return err
}

func (b *bucket) hasFile(ctx context.Context, name string) (bool, error) {
	_, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: b.objectKey(name)})
	if err = missing(err); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (b *bucket) remove(ctx context.Context, name string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: b.objectKey(name)})
	return missing(err)
}

func (b *bucket) create(ctx context.Context, name, _ string) (upload, error) {
	out, err := b.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: b.objectKey(name)})
	if err != nil {
		return nil, err
	}
	return &partUpload{ctx: ctx, to: b, key: b.objectKey(name), id: out.UploadId}, nil
}

// removeUnfinished aborts all unfinished uploads of this cluster. The caller's claim prevents other
// nodes from uploading at the same time.
func (b *bucket) removeUnfinished(ctx context.Context, prefix, _ string) {
	out, err := b.client.ListMultipartUploads(ctx,
		&s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: b.objectKey(prefix), MaxUploads: aws.Int32(maxSwept)})
	if err != nil {
		return // if the bucket does not answer, the upload that follows fails too
	}
	for _, u := range out.Uploads {
		// If this fails, the next backup tries again.
		_, _ = b.client.AbortMultipartUpload(ctx,
			&s3.AbortMultipartUploadInput{Bucket: &b.name, Key: u.Key, UploadId: u.UploadId})
	}
}

// partUpload is an object that is being uploaded. Only one goroutine may use it.
type partUpload struct {
	ctx   context.Context
	to    *bucket
	key   *string
	id    *string
	buf   []byte
	parts []types.CompletedPart
	ended bool
}

// Write implements io.Writer.
func (u *partUpload) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		k := min(len(b), partSize-len(u.buf))
		u.buf = append(u.buf, b[:k]...)
		b, n = b[k:], n+k
		if len(u.buf) == partSize {
			if err := u.sendPart(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (u *partUpload) sendPart() error {
	at := aws.Int32(int32(len(u.parts) + 1))
	out, err := u.to.client.UploadPart(u.ctx, &s3.UploadPartInput{
		Bucket:     &u.to.name,
		Key:        u.key,
		UploadId:   u.id,
		PartNumber: at,
		Body:       bytes.NewReader(u.buf),
	})
	if err != nil {
		return err
	}

	u.parts = append(u.parts, types.CompletedPart{ETag: out.ETag, PartNumber: at})
	u.buf = u.buf[:0]
	return nil
}

func (u *partUpload) finish() error { return u.sendPart() }

func (u *partUpload) publish() error {
	_, err := u.to.client.CompleteMultipartUpload(u.ctx,
		&s3.CompleteMultipartUploadInput{Bucket: &u.to.name, Key: u.key, UploadId: u.id,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts}})
	u.ended = err == nil
	return err
}

func (u *partUpload) abandon() {
	if !u.ended {
		// If this fails, removeUnfinished aborts the upload before the next backup.
		_, _ = u.to.client.AbortMultipartUpload(context.WithoutCancel(u.ctx),
			&s3.AbortMultipartUploadInput{Bucket: &u.to.name, Key: u.key, UploadId: u.id})
	}
}
