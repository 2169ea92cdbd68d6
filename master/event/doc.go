// Package event is the master's event bus and the two Unix sockets through which Salt's Python
// tools and our own commands read and fire events.
//
// What the bus promises to its readers:
//
//   - Fire never blocks. Every subscriber has a bounded queue.
//   - A subscriber inside the process that is too slow loses the newest
//     events; they are counted, and the next event it gets says how many were
//     lost before it (Event.Lost).
//   - A reader on the socket that is too slow is cut off once the bytes that
//     wait for it exceed Config.ReaderBuffer, as in Salt 3008; it never sees a
//     stream with a hole in it.
//   - All subscribers see all events in one order.
//   - An event is packed at most once, only if a socket reader is there, and
//     all readers share the bytes.
//
// An event is a tag and a map. On the sockets it is
//
//	tag "\n\n" msgpack(map, with bin types)
//
// inside a frame {"head": {}, "body": bin}. Writers put a 4-byte big-endian
// length before each frame; readers get bare frames from Salt 3007 and 3008
// and prefixed ones from 3006 (salt/utils/event.py, salt/transport/tcp.py,
// salt/transport/frame.py).
//
// An event on the bus does not prove who fired it: whoever may open the pull socket may fire
// any tag. Event.Origin distinguishes such events from the master's own.
package event
