"""The mask functions of transformers.masking_utils, in its names, without PyTorch (numpy_torch.py)."""


def and_masks(*mask_functions):
    def and_mask(batch_idx, head_idx, q_idx, kv_idx):
        result = True
        for mask in mask_functions:
            result = result & mask(batch_idx, head_idx, q_idx, kv_idx)
        return result
    return and_mask


def or_masks(*mask_functions):
    def or_mask(*place):
        return any(mask(*place) for mask in mask_functions)
    return or_mask


def causal_mask_function(batch_idx, head_idx, q_idx, kv_idx):
    return kv_idx <= q_idx


def bidirectional_mask_function(batch_idx, head_idx, q_idx, kv_idx):
    return q_idx >= 0


def sliding_window_overlay(sliding_window):
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return kv_idx > q_idx - sliding_window
    return inner_mask


def sliding_window_bidirectional_overlay(sliding_window):
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return abs(q_idx - kv_idx) <= sliding_window
    return inner_mask


def chunked_overlay(chunk_size, left_padding):
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return (kv_idx - left_padding[batch_idx]) // chunk_size == (q_idx - left_padding[batch_idx]) // chunk_size
    return inner_mask


def blockwise_overlay(block_sequence_ids):
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return block_sequence_ids[batch_idx, q_idx] == block_sequence_ids[batch_idx, kv_idx]
    return inner_mask


def packed_sequence_mask_function(packed_sequence_mask):
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return packed_sequence_mask[batch_idx, q_idx] == packed_sequence_mask[batch_idx, kv_idx]
    return inner_mask


def remap_positions_for_packed_sequence(mask_function, position_ids):
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return mask_function(batch_idx, head_idx, position_ids[batch_idx, q_idx], position_ids[batch_idx, kv_idx])
    return inner_mask


def sliding_window_causal_mask_function(sliding_window):
    return and_masks(sliding_window_overlay(sliding_window), causal_mask_function)


def sliding_window_bidirectional_mask_function(sliding_window):
    return and_masks(sliding_window_bidirectional_overlay(sliding_window), bidirectional_mask_function)


def chunked_causal_mask_function(chunk_size, left_padding):
    return and_masks(chunked_overlay(chunk_size, left_padding), causal_mask_function)


def packed_sequence_compatibility_function(mask_function, position_ids, packed_sequence_mask):
    return and_masks(packed_sequence_mask_function(packed_sequence_mask),
                     remap_positions_for_packed_sequence(mask_function, position_ids))
