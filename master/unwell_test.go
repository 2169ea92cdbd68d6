package master_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/client"
	"saltern/master/internal/mastertest"
	"saltern/test/await"
	"saltern/test/baddisk"
	"saltern/test/check"
)

// TestMasterOfDeadDisk: a master whose disk fails during its run reports that in the answer to a
// ping, within seconds and without a job. (Finding F4.)
func TestMasterOfDeadDisk(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "saltern") // the path of a socket must be short
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	disk := baddisk.On(t, filepath.Join(dir, "d"), baddisk.Ext4, 1<<30)
	r := mastertest.StartIn(t, disk.Dir, "")
	c := client.New(client.Config{Interface: r.Host, RetPort: r.Parts.Options.RetPort, SockDir: r.Path("run"), NoKey: true})
	defer c.Close()

	check.Must(t, c.Answers(t.Context()))

	disk.Break()
	await.That(t, "the master to say so", func() bool {
		err = c.Answers(t.Context())
		return errors.Is(err, client.ErrUnwell)
	})

	if !strings.Contains(err.Error(), "this master cannot keep jobs: ") || strings.Contains(err.Error(), disk.Dir) {
		t.Error(err)
	}
}
