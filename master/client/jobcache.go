package client

import (
	"context"
	"encoding/hex"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"saltern/internal/control"
	"saltern/master/crypt"
	"saltern/master/internal/datafile"
	"saltern/master/keys"
	"saltern/master/value"
)

// maxCachedReturn bounds a file of the job cache that the client reads, in bytes.
const maxCachedReturn = 256 << 20

// layOutAtOnce bounds the minions of one request to the master, so that their names fit into it.
const layOutAtOnce = 200

// layOut has the master write the returns of these minions as files, if there are any, so that cached finds them.
// Without a master that can, cached finds what is a file already.
func (c *Client) layOut(ctx context.Context, jid string, minions []string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var owner syscall.Stat_t
	if len(minions) == 0 || syscall.Stat(c.cfg.CacheDir, &owner) != nil {
		return
	}

	master := control.NewClient(filepath.Join(c.cfg.SockDir, control.Socket), int(owner.Uid))
	for some := range slices.Chunk(minions, layOutAtOnce) {
		if err := master.LayOutJob(ctx, control.JobFiles{JID: jid, Minions: some}); err != nil {
			c.cfg.Log.Debug("returns are not looked for in the master's segments", "jid", jid, "error", err)
			return
		}
	}
}

// cached returns a minion's return from the job cache on this host (salt/returners/local_cache.py).
// It returns false if there is none.
func (c *Client) cached(jid, id string) (Return, bool) {
	if keys.ValidID(id) != nil {
		return Return{}, false
	}

	h := jidHash(c.cfg.HashType, jid)
	dir := filepath.Join(c.cfg.CacheDir, "jobs", h[:2], h[2:], id)
	m, ok := readMap(filepath.Join(dir, "return.p"))
	if !ok {
		return Return{}, false
	}

	r := Return{ID: id, JID: jid}
	r.Ret, r.HasRet = m.Get("return")
	r.Retcode, r.HasRetcode = m.Get("retcode")
	if v, ok := readValue(filepath.Join(dir, "out.p")); ok {
		r.Out, _ = v.(string)
	}

	return r, true
}

func jidHash(kind, jid string) string {
	if crypt.Hash(kind) == nil {
		kind = "sha256"
	}
	h := crypt.Hash(kind)()
	h.Write([]byte(jid))
	return hex.EncodeToString(h.Sum(nil))
}

func readMap(path string) (*value.Map, bool) {
	v, ok := readValue(path)
	m, isMap := v.(*value.Map)
	return m, ok && isMap
}

func readValue(path string) (any, bool) {
	v, err := datafile.Bound{Bytes: maxCachedReturn, Nodes: answerLimits.Nodes}.Read(path)
	return v, err == nil
}
