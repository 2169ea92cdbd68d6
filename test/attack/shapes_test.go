//go:build attack

package attack

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/minion"
)

// framed is a request on the wire: an empty frame and the payload.
func framed(payload []byte) []byte {
	return append(claim(len(payload)), payload...)
}

// claim is the beginning of a message of n bytes: eleven.
func claim(n int) []byte {
	return binary.BigEndian.AppendUint64([]byte{1, 0, 2}, uint64(n))
}

// plainly packs a request in the clear.
func plainly(load any) []byte {
	b, err := msgpack.Marshal(value.NewMap("enc", "clear", "load", load, "version", 3), msgpack.Raw)
	if err != nil {
		panic(err)
	}
	return framed(b)
}

// repeated is a request of about size bytes whose load has a list of unit,
// which is packed already.
func repeated(cmd string, unit []byte, size int) []byte {
	n := size / len(unit)
	b := []byte("\x83\xa3enc\xa5clear\xa7version\x03\xa4load\x82\xa3cmd")
	b = append(append(b, 0xa0|byte(len(cmd))), cmd...)
	b = append(b, "\xa1x\xdd"...)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	for range n {
		b = append(b, unit...)
	}
	return framed(b)
}

// shapeOf finds a shape by its name and makes its messages.
func shapeOf(s *stranger, name string) shape {
	again := func(msgs ...[]byte) shape {
		return shape{port: "4506", use: func(c *strangerConn) {
			if !c.handshake(1) {
				return
			}
			for i := c.number / len(s.Shapes); c.message(msgs[i%len(msgs)]); i++ {
			}
		}}
	}

	deep := []byte(strings.Repeat("\x81\xa1a", 30) + "\x80")
	switch name {
	// 2: what is small on the wire and large when it is decoded.
	case "lists":
		return again(repeated("nope", []byte{0x90}, 1860000))
	case "maps":
		return again(repeated("nope", []byte{0x80}, 1860000), repeated("nope", deep, 1860000))
	case "small":
		return again(repeated("nope", []byte{0x90}, 58000), repeated("ping", deep, 58000),
			repeated("_auth", []byte{0x80}, 58000))

	// 6: large frames that are announced, and those that trickle.
	case "claims":
		return shape{port: "4506", use: func(c *strangerConn) {
			size := []int{1 << 20, 200 << 10, 60 << 20}[c.number/2%3]
			if c.handshake(1) && c.message(claim(size)) {
				c.hold(25 * time.Second)
			}
		}}
	case "trickle":
		return shape{port: "4506", use: func(c *strangerConn) {
			if !c.handshake(byte(c.number/2%2)) || !c.message(claim([]int{1 << 20, 200 << 10, 1 << 20}[c.number/2%3])) {
				return
			}
			for part := make([]byte, 4500); c.send(part); {
				c.hold(time.Second)
			}
		}}

	// 7: answers that are not read.
	case "ping30", "ping31":
		minor := name[5] - '0'
		var msgs [][]byte
		for _, n := range []int{60 << 10, 60 << 10, 60 << 10, 220 << 10, 1 << 20, 8 << 20} {
			msgs = append(msgs, plainly(value.NewMap("cmd", "ping", "x", strings.Repeat("x", n))))
		}

		return shape{port: "4506", buffer: 4096, use: func(c *strangerConn) {
			c.slow = true
			if !c.handshake(minor) {
				return
			}

			for i := c.number + c.round; c.message(msgs[i%len(msgs)]); i++ {
				if i%64 == 63 {
					c.hold(50 * time.Millisecond)
				}
			}
		}}

	// 8: what is written into the log.
	case "texts":
		var msgs [][]byte
		for _, n := range []int{60000, 240000, 1 << 20, 8 << 20} {
			x := strings.Repeat("\x01", n)
			msgs = append(msgs,
				plainly(value.NewMap("cmd", "publish", "tgt", "*", "fun", "test.ping", "arg", []any{},
					"user", x, "key", "k")),
				plainly(value.NewMap("cmd", "publish", "tgt", x, "fun", x, "arg", []any{}, "user", "root",
					"key", "k", "jid", x)),
				plainly(value.NewMap("cmd", "mk_token", "eauth", x, "username", "u", "password", "p")),
				plainly(value.NewMap("cmd", "wheel", "eauth", "pam", "username", x, "password", "p", "fun", x)),
				plainly(value.NewMap("cmd", "_auth", "id", x, "sig_algo", x, "enc_algo", x, "nonce", "n", "pub", x)),
				plainly(value.NewMap("cmd", x)),
				framed(append([]byte("\x83\xa3enc\xa3aes\xa7version\x03\xa2id\xdb"),
					append(binary.BigEndian.AppendUint32(nil, uint32(n)), x...)...)))
		}

		return again(msgs...)
	case "lines":
		pub := newKey()
		return shape{port: "4506", use: func(c *strangerConn) {
			if !c.handshake(1) {
				return
			}

			for i := 0; ; i++ {
				word := fmt.Sprintf("w%d-%d-%d", c.number, c.round, i)
				l := value.NewMap("cmd", "publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "user",
					word, "key", "k")
				switch i % 5 {
				case 1:
					l = value.NewMap("cmd", "_auth", "id", word, "sig_algo", word, "enc_algo", word, "nonce",
						"n", "pub", "no key")
				case 2:
					l = value.NewMap("cmd", word)
				case 3:
					l = value.NewMap("cmd", "mk_token", "eauth", word, "username", word, "password", "p")
				case 4:
					l = signIn(word, pub)
				}

				if !c.message(plainly(l)) {
					return
				}
			}
		}}

	// 9: connections that are held.
	case "half":
		return shape{port: "4506", use: func(c *strangerConn) { // nothing, or the beginning of a greeting
			if c.number%2 == 0 || c.send(greeting(1)[:20]) {
				go c.drain()
				c.hold(time.Hour)
			}
		}}
	case "greeted":
		return shape{port: "4506", use: func(c *strangerConn) {
			if c.send(greeting(1)) {
				go c.drain()
				c.hold(time.Hour)
			}
		}}
	case "ready30", "ready31":
		return shape{port: "4506", use: func(c *strangerConn) {
			if c.handshake(name[6] - '0') {
				c.hold(time.Hour)
			}
		}}
	case "subscriber":
		return shape{port: "4505", use: func(c *strangerConn) {
			if c.send(greeting(0)) && c.send(readySub) {
				go c.drain()
				c.hold(time.Hour)
			}
		}}

	// 12: an accepted minion's targets.
	case "minelist", "publist", "minepcre", "pubpcre", "minefuns":
		return s.asked(name)

	// 15: keys that wait.
	case "onekey", "manykeys":
		pub := newKey()
		return shape{port: "4506", use: func(c *strangerConn) {
			if !c.handshake(1) {
				return
			}

			for i := 0; ; i++ {
				if name == "manykeys" {
					pub = newKey()
				}

				if !c.message(plainly(signIn(fmt.Sprintf("x%d-%d-%d-%d", os.Getpid(), c.number, c.round, i), pub))) {
					return
				}
				if i%8 == 7 && !c.pause(20*time.Millisecond) {
					return
				}
			}
		}}
	}

	if sh, ok := httpShape(name); ok {
		return sh
	}

	panic(fmt.Errorf("%w %q", errUnknownShape, name))
}

func signIn(id, pub string) *value.Map {
	return value.NewMap("cmd", "_auth", "id", id, "nonce", minion.Nonce(), "enc_algo", crypt.OAEPSHA1,
		"sig_algo", crypt.PKCS1SHA1, "pub", pub)
}

// backtracking makes engines with backtracking try all ways to divide a name
// of the letter a and something else.
const backtracking = `(?=a)(a+)+(a+)+$`

// asked is an accepted minion that asks for costly targets, one after the other.
func (s *stranger) asked(name string) shape {
	names := make([]any, 90000)
	for i := range names {
		names[i] = fmt.Sprintf("nobody-%06d", i)
	}

	var cmd string
	var fields []any
	switch name {
	case "minelist":
		cmd, fields = "_mine_get", []any{"tgt", names, "tgt_type", "list", "fun", "f"}
	case "minefuns":
		cmd, fields = "_mine_get", []any{"tgt", "*", "tgt_type", "glob", "fun", names}
	case "minepcre":
		cmd, fields = "_mine_get", []any{"tgt", backtracking, "tgt_type", "pcre", "fun", "f"}
	case "publist":
		cmd = "minion_pub"
		fields = []any{"tgt", names, "tgt_type", "list", "fun", "test.ping", "arg", []any{}, "ret", "", "tmo", 5}
	case "pubpcre":
		cmd = "minion_pub"
		fields = []any{"tgt", backtracking, "tgt_type", "pcre", "fun", "test.ping", "arg", []any{}, "ret", "", "tmo", 5}
	}

	return shape{port: "4506", use: func(c *strangerConn) {
		_ = c.Conn.Close()
		m, err := c.asMinion(c.source)
		if err != nil {
			c.done.Refused.Add(1)
			return
		}
		defer m.Close()

		for c.ctx.Err() == nil {
			_, err := m.Ask(c.ctx, cmd, fields...)
			if err != nil {
				return
			}
			c.done.Messages.Add(1)
		}
	}}
}
