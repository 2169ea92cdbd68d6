package control

import "bytes"

// PingFault is the field of an answer to a ping in which a master says why it can keep
// no jobs. Beside it stands cluster_retry, by which Salt's masters of a cluster say that
// they cannot serve yet (salt/channel/server.py): who does not know PingFault reads that.
// The load balancer has a constant of its own for it.
const PingFault = "saltern_fault"

// PingTrouble finds the text of PingFault in an answer that is packed with msgpack; "":
// there is none. It is for readers who do not decode such answers.
func PingTrouble(answer []byte) string {
	_, rest, ok := bytes.Cut(answer, []byte(PingFault))
	if !ok || len(rest) < 1 {
		return ""
	}

	const fixstr, str8, str16 = 0b101, 0xd9, 0xda
	size, text := 0, rest
	switch {
	case rest[0]>>5 == fixstr:
		size, text = int(rest[0]&0x1f), rest[1:]
	case rest[0] == str8 && len(rest) > 1:
		size, text = int(rest[1]), rest[2:]
	case rest[0] == str16 && len(rest) > 2:
		size, text = int(rest[1])<<8|int(rest[2]), rest[3:]
	}

	return oneLine(string(text[:min(size, len(text))]))
}
