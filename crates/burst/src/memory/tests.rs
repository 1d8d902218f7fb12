//! Where frames are, and what packets hold.

use super::*;

#[test]
fn frames_come_home_from_anywhere() {
    let memory = Memory::new(8, 2048).unwrap();
    let (mut a, mut b) = (memory.pool(4).unwrap(), memory.pool(4).unwrap());
    assert!(memory.pool(1).is_err(), "all frames are carved");
    let packets: Vec<_> = (0..4).map(|i| a.packet(&[i; 60]).unwrap()).collect();
    assert!(a.take().is_none());
    assert!(packets.iter().enumerate().all(|(i, p)| p.data() == [i as u8; 60]));
    for (i, packet) in packets.into_iter().enumerate() {
        match i {
            0 => a.free(packet),
            1 => b.free(packet),
            2 => drop(packet),
            _ => std::thread::spawn(move || drop(packet)).join().unwrap(),
        }
    }
    assert_eq!(a.stats(), PoolStats { frames: 4, free: 4, unnamed: 2 });
    let all: Vec<_> = (0..5).map_while(|_| a.take()).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn packets_are_taken_into_a_burst_as_far_as_there_is_room() {
    let memory = Memory::new(300, 2048).unwrap();
    let (mut pool, mut other) = (memory.pool(290).unwrap(), memory.pool(10).unwrap());
    let mut burst = Burst::new();
    assert_eq!(pool.take_into(3, &mut burst).len(), 3);
    for (i, packet) in pool.take_into(2, &mut burst).iter_mut().enumerate() {
        packet.set_len(1);
        packet.data_mut()[0] = i as u8;
    }
    let lens: Vec<usize> = burst.iter().map(Packet::len).collect();
    assert_eq!((lens, burst[3].data(), burst[4].data()), (vec![0, 0, 0, 1, 1], &[0][..], &[1][..]));
    assert_eq!(pool.take_into(1000, &mut burst).len(), 251, "no more than fit");
    let mut second = Burst::new();
    assert_eq!(pool.take_into(100, &mut second).len(), 34, "no more than there are");
    assert_eq!(pool.take_into(1, &mut second).len(), 0);
    // Those that were freed elsewhere come back.
    other.free_all(&mut second);
    assert_eq!(pool.take_into(100, &mut second).len(), 34);
    pool.free_all(&mut burst);
    pool.free_all(&mut second);
    assert_eq!(pool.stats(), PoolStats { frames: 290, free: 290, unnamed: 0 });
}

#[test]
fn a_packet_outlives_its_pool() {
    let packet = Memory::new(2, 2048).unwrap().pool(2).unwrap().packet(b"still here").unwrap();
    assert_eq!(packet.data(), b"still here");
}

#[test]
fn headers_are_pushed_and_popped_within_the_frame() {
    let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
    assert!(pool.packet(&[0; 1793]).is_none(), "too long for a frame");
    let mut packet = pool.packet(&[7; 100]).unwrap();
    packet.set_timestamp_ns(42);
    assert!(packet.cut_front(14) && packet.grow_front(14) && packet.grow_front(192));
    assert!(!packet.grow_front(1), "the cold bytes are not headroom");
    assert_eq!((packet.timestamp_ns(), packet.len()), (42, 292));
    assert!(!packet.cut_front(293));
    packet.set_len(packet.len() + packet.tailroom());
    assert_eq!(packet.tailroom(), 0);
}

#[test]
fn what_a_frame_held_before_does_not_show() {
    let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
    let mut packet = pool.packet(&[7; 100]).unwrap();
    packet.set_timestamp_ns(42);
    packet.set_wire_len(1500);
    packet.set_trace(3);
    packet.set_own();
    let merged = Merged { size: 1448, fixed_ident: true };
    packet.set_merged(merged);
    assert_eq!((packet.timestamp_ns(), packet.wire_len(), packet.trace()), (42, 1500, Some(3)));
    assert_eq!((packet.is_own(), packet.merged()), (true, Some(merged)));
    packet.clear_merged();
    assert_eq!(packet.merged(), None);
    packet.set_merged(merged);
    pool.free(packet);
    let packet = pool.take().unwrap();
    assert_eq!((packet.is_own(), packet.merged()), (false, None));
    assert_eq!((packet.len(), packet.timestamp_ns(), packet.wire_len(), packet.trace()), (0, 0, 0, None));
    pool.free(packet);
}

#[test]
fn the_largest_frame_can_be_cut_to_its_end() {
    assert!(Memory::new(1, 65536).is_err(), "offsets would not fit in 16 bits");
    let mut pool = Memory::new(1, 32768).unwrap().pool(1).unwrap();
    let mut packet = pool.take().unwrap();
    packet.set_len(packet.tailroom());
    assert!(packet.cut_front(packet.len()));
    assert_eq!((packet.len(), packet.headroom(), packet.tailroom()), (0, 32768 - COLD, 0));
    pool.free(packet);
}

#[test]
fn frames_are_found_by_where_their_bytes_are() {
    for (size, spread) in [(2048, false), (2048, true), (4096, true), (32768, true)] {
        let frames = 700;
        let memory = if spread { Memory::spread(frames, size) } else { Memory::new(frames, size) }.unwrap();
        let stride = size + if spread { APART } else { 0 };
        assert_eq!((memory.is_dense(), memory.len_bytes()), (!spread, frames * stride));
        for frame in 0..frames {
            let start = frame * stride;
            assert_eq!(memory.offset(frame as u32), start);
            for at in [0, 1, 63, 255, 256, size - 1] {
                assert_eq!(memory.place((start + at) as u64), Some((frame as u32, at)));
            }
            let gap = (size..stride).map(|at| memory.place((start + at) as u64));
            assert!(gap.eq((size..stride).map(|_| None)));
        }
        for outside in [frames * stride, usize::MAX, 1 << 47] {
            assert_eq!(memory.place(outside as u64), None);
        }
    }
}

/// The largest regions that there can be: the division by multiplication is exact to the last byte.
#[test]
fn frames_far_out_are_found() {
    for size in [2048, 2112, 4096, 4160, 32768, 32832] {
        let spacing = Spacing::new(size);
        let last = (1_usize << 48) / size - 1;
        for frame in [0, 1, 2, 1 << 20, (1 << 31) + 1, last.min(u32::MAX as usize)] {
            let start = spacing.offset(frame as u32);
            assert_eq!(start, frame * size);
            for at in [0, 1, size - 1] {
                assert_eq!(spacing.frame(start + at) as usize, frame, "{size} {at}");
            }
        }
    }
}

#[test]
fn packets_of_a_spread_region_come_home_and_share_no_byte() {
    let memory = Memory::spread(300, 2048).unwrap();
    let (mut a, mut b) = (memory.pool(200).unwrap(), memory.pool(100).unwrap());
    let room = a.room();
    let mut packets: Vec<Packet> = (0..200).map(|i| a.packet(&vec![i as u8; room]).unwrap()).collect();
    packets.extend((200..300).map(|i| b.packet(&vec![i as u8; room]).unwrap()));
    for (i, packet) in packets.iter().enumerate() {
        assert!(packet.data().iter().all(|byte| *byte == i as u8), "{i}");
        assert_eq!(packet.index() as usize % 300, packet.index() as usize);
    }
    packets.into_iter().for_each(|packet| a.free(packet));
    b.refill();
    assert_eq!((a.stats().free, b.stats().free), (200, 100));
    // What a device that goes by addresses is lent comes back, too.
    let mut lent = crate::Lent::new(&memory);
    let packet = a.packet(b"to a device").unwrap();
    let (index, address) = (packet.index(), lent.lend(packet).unwrap());
    assert_eq!(memory.place(address), Some((index, DATA_START)));
    let packet = lent.adopt(address, 11).unwrap();
    assert_eq!(packet.data(), b"to a device");
    a.free(packet);
}
